"""Labels that have a meaning for us."""

from __future__ import annotations

PARENT = "phalanx.parent"  # of a run that was begun by another one
HIDDEN = "phalanx.mlflow."  # what begins so is not shown to MLflow's clients
DELETED = "phalanx.mlflow.deleted"
