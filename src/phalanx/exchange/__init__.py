"""Import and export: runs from other tools and homes, and out as plain files. Nothing of a source is ever executed."""
