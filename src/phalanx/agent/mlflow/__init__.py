"""MLflow's API for the processes of a replica whose run has no Phalanx server."""
