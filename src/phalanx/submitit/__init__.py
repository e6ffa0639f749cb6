"""The API of submitit, on Phalanx: `import phalanx.submitit as submitit`.

Jobs are runs, so `phalanx ps`, `logs` and the web page show them. `folder` gets a copy of what each job printed.
"""

from __future__ import annotations

from phalanx.submitit import helpers as helpers
from phalanx.submitit.executors import AutoExecutor as AutoExecutor
from phalanx.submitit.executors import LocalExecutor as LocalExecutor
from phalanx.submitit.executors import SlurmExecutor as SlurmExecutor
from phalanx.submitit.job_environment import JobEnvironment as JobEnvironment
from phalanx.submitit.jobs import FailedJobError as FailedJobError
from phalanx.submitit.jobs import Job as Job
from phalanx.submitit.jobs import UncompletedJobError as UncompletedJobError
