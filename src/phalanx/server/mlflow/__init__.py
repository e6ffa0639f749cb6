"""MLflow's REST API over Phalanx's runs: experiments are projects, tags are labels, artifacts are in the run's folder.

Based on the documentation and behaviour of MLflow 2.22 and 3.x clients; MLflow itself is not needed.
"""
