"""MLflow's REST API over Phalanx's runs: experiments are projects, tags are labels, artifacts lie in the run's folder.

Written from the documentation and behaviour of MLflow 2.22 and 3.x clients; nothing of MLflow is needed for it.
"""
