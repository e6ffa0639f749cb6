"""Callbacks for training libraries: `from phalanx.tracking.callbacks import PhalanxKeras`.

    PhalanxLightning     a logger of lightning.pytorch, pytorch_lightning and Fabric
    PhalanxKeras         a callback of Keras 3, tf.keras and tf_keras
    PhalanxTransformers  a callback of transformers' Trainer
    PhalanxXGBoost       a callback of xgboost.train, xgboost.cv and its estimators
    phalanx_lightgbm     makes a callback of lightgbm.train, lightgbm.cv and its estimators
    log_booster          records a trained booster of XGBoost or LightGBM and its feature importance
    log_estimator        records a scikit-learn estimator and its scores
    log_search           records the candidates and results of a scikit-learn search

Each loads its library when it is first used. Standard library only, Python 3.8+.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_PLACES = {
    "PhalanxKeras": "keras",
    "PhalanxLightning": "lightning",
    "PhalanxTransformers": "transformers",
    "PhalanxXGBoost": "xgboost",
    "log_booster": "boosters",
    "log_estimator": "sklearn",
    "log_search": "sklearn",
    "phalanx_lightgbm": "lightgbm",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"phalanx.tracking.callbacks has no `{name}`; it has {', '.join(_PLACES)}")
    module = import_module(f"{__name__}.{_PLACES[name]}")
    globals()[name] = found = module.make() if name.startswith("Phalanx") else getattr(module, name)
    return found


def __dir__() -> list[str]:
    return sorted(_PLACES)
