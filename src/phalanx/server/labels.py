"""Labels with a meaning for the server."""

from __future__ import annotations

HIDDEN = "phalanx.mlflow."  # labels with this prefix are hidden from MLflow's clients
DELETED = "phalanx.mlflow.deleted"
