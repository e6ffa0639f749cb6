"""These build, download and install packages for minutes: `make test-install` runs them."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("PHALANX_TEST_INSTALL") else ["test_*.py"]
