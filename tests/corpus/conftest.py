"""These tests read other people's polyaxonfiles from the folder that PHALANX_TEST_CORPUS names: `make test-corpus`.

Without the variable they are not collected.
"""

from __future__ import annotations

import os

from tests.corpus.folder import VARIABLE

collect_ignore_glob = [] if os.environ.get(VARIABLE) else ["test_*.py"]
