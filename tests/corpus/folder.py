"""Where the corpus of other people's polyaxonfiles is: PHALANX_TEST_CORPUS. It is never committed to the project.

files/           real polyaxonfiles
expected.json    which releases of Polyaxon accepted each of them, and what they computed
cases/           small probes and the documents' own examples; VERDICTS.json says what each release made of them
"""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "PHALANX_TEST_CORPUS"


def corpus() -> Path:
    """The folder of the corpus. Raises KeyError when the variable is not set."""
    return Path(os.environ[VARIABLE]).resolve()
