"""The registry of models: names, versions, aliases, lineage."""
