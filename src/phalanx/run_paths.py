"""Names of the files and folders of a run. Standard library only, Python 3.8+.

Paths are relative to the run's folder. They are stored: changing one of them makes existing runs unreadable.
"""

from __future__ import annotations

# In the folder of a run
RUN = "run.json"
SPEC = "spec.yml"
PLAN = "plan.json"
SUBMITTED = "submitted.json"
RECORDS = "records.json"
CLUSTER = "cluster.json"
HISTORY = "history"
STOP = "stop.json"
RESUME = "resume.json"
AFTER = "after.json"
NOTIFY = "notify.json"
KEEP = "keep.json"
REMOVAL = "removal.json"
NOTIFICATIONS = "notifications"
BUILD = "build.json"
OUTPUTS_MANIFEST = "outputs.json"
OUTPUTS_LOCK = "outputs.lock"
LOGGED_MODELS = "logged-models.json"
UPLOAD = "upload.json"
REPLICAS = "replicas"
JOB = "job"
CODE = "code"
OUTPUTS = "outputs"
ARTIFACTS = "artifacts"
MODELS = "models"
SERIES = "series"

# In the folder of a group or pipeline, in addition
GROUP = "group.json"
PIPELINE = "pipeline.json"
JOURNAL = "journal"
SEARCH = "search.json"  # of a group: its progress
PROGRESS = "progress.json"  # of a pipeline or schedule
REQUESTS = "requests"

# In `job`
AGENT_ARCHIVE = "agent.pyz"
CLIENT_ARCHIVE = "tracking.zip"
VIRTUALENV_ARCHIVE = "venv.tar"  # of a pipeline: one for each of its ops
KEEP_VIRTUALENV = "venv.keep"  # exists: the first node packs the virtual environment that it makes
HOLD = f"{JOB}/hold.json"  # a path: which attempts are held after a failure, and for how long
HOSTFILE = "hostfile"
HOSTS_SCRIPT = "hosts.sh"

# In `code`
INPUTS = ".phalanx-inputs"  # files that an op got from other ops, by the names of its params

# In `outputs`
OUTPUT_VALUES = "outputs.json"  # values of declared outputs, written by the program

# In the folder of a replica's attempt
LOG = "log"
SPOOL = "spool"
MEDIA = "media"
AGENT = "agent.json"
AGENT_LOG = "agent.log"
END = "end.json"
END_DRAFT = "end.draft"
END_HELD = "end.held"
WORKING_FILES = "working-files.json"
ASKED_TO_END = "asked-to-end"
ASKED_TO_ABORT = "asked-to-abort"
NOTEBOOK = ".notebook"  # a folder; hidden, so that it is neither sent nor exported
NOTEBOOK_ADDRESS = "address.json"  # in it, once the server answers
IMPORT_MARK = "import.unfinished"

_ATTEMPT = "attempt-"


def attempt_name(attempt: int | str) -> str:
    """The name of an attempt in paths. A text in place of the number makes a pattern."""
    return f"{_ATTEMPT}{attempt}"


def attempt_number(name: str) -> int | None:
    """The number in the name of an attempt; None for other names."""
    return _number(name[len(_ATTEMPT) :]) if name.startswith(_ATTEMPT) else None


def attempt_folder(replica: str, attempt: int | str) -> str:
    return f"{REPLICAS}/{replica}/{attempt_name(attempt)}"


def earlier_outputs(attempt: int) -> str:
    """The outputs up to an attempt after which a trial started over."""
    return f"{OUTPUTS}-{attempt_name(attempt)}"


ATTEMPT_FOLDERS = attempt_folder("*", "*")  # a glob pattern


def facts_file(attempt: int | str) -> str:
    """The facts with which an attempt was started: hosts, ports, paths."""
    return _job_file(attempt, "json")


def step_errors_file(attempt: int | str) -> str:
    """What srun says while it starts the ranks of an attempt; removed when they have ended."""
    return _job_file(attempt, "srun")


def progress_file(attempt: int | str) -> str:
    """What the first node of a Slurm job does before an attempt starts, in words."""
    return _job_file(attempt, "progress")


def packages_file(attempt: int | str) -> str:
    """The packages that are installed on each node."""
    return _job_file(attempt, "packages.json")


def handle_file(attempt: int | str) -> str:
    """The submission of an attempt: when it began, and the engine's handle of the job once it is known."""
    return _job_file(attempt, "handle")


def claim_file(attempt: int | str) -> str:
    """The job that runs an attempt, as the job itself has recorded before anything else."""
    return _job_file(attempt, "claim.json")


def positions_file(attempt: int | str) -> str:
    """How far the logs of pods have been read."""
    return _job_file(attempt, "positions.json")


def _job_file(attempt: int | str, ending: str) -> str:
    return f"{JOB}/{attempt_name(attempt)}.{ending}"


def series_part(attempt: int, part: int = 1) -> str:
    """The name of a file in `series`, without its suffix."""
    return attempt_name(attempt) if part == 1 else f"{attempt_name(attempt)}-{part}"


def series_part_numbers(name: str) -> tuple[int, int] | None:
    """The attempt and the part in such a name; None for other names."""
    first, dash, last = name.partition("-")[2].partition("-")
    part = _number(last) if dash else 1
    attempt = _number(first) if name.startswith(_ATTEMPT) else None
    return None if attempt is None or part is None else (attempt, part)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None
