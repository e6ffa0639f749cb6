"""Interactive use of a replica: entering it, holding it after a failure, notebooks. Standard library, 3.8+."""
