"""Files of Polyaxon 1.x and 2.x: components, operations and presets, read into the modern form of a polyaxonfile."""

from phalanx.spec.polyaxon_v1.modern_files import modern_tree
from phalanx.spec.polyaxon_v1.references import NoReferences, ReferenceFault, References
from phalanx.spec.polyaxon_v1.sections import is_modern, sign_of_format

__all__ = ["NoReferences", "ReferenceFault", "References", "is_modern", "modern_tree", "sign_of_format"]
