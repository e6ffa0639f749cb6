"""The model registry: names, versions, aliases, lineage."""
