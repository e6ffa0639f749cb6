"""Text to Spec: reads polyaxonfiles of every dialect, renders templates and validates."""

from phalanx.spec.loader import load, load_document
from phalanx.spec.model import Amount, Kind, Resources, Spec

__all__ = ["Amount", "Kind", "Resources", "Spec", "load", "load_document"]
