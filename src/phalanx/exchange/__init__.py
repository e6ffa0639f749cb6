"""Import and export: runs from other tools and homes, and out as plain files. Nothing in a source is ever executed."""
