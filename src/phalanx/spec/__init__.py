"""Text to Spec: every dialect, template and typo is settled here, nowhere else."""

from phalanx.spec.loader import load, load_document
from phalanx.spec.model import Amount, Kind, Resources, Spec

__all__ = ["Amount", "Kind", "Resources", "Spec", "load", "load_document"]
