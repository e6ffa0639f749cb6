"""Scripts of sbatch: their directives, and the scripts as polyaxonfiles."""

from phalanx.spec.batch_scripts.as_written import document_of_command, document_of_script
from phalanx.spec.batch_scripts.conversion import converted_script
from phalanx.spec.batch_scripts.directives import BatchScript, is_batch_script, read_script

__all__ = [
    "BatchScript",
    "converted_script",
    "document_of_command",
    "document_of_script",
    "is_batch_script",
    "read_script",
]
