import lightgbm
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from phalanx.tracking.callbacks import log_booster, phalanx_lightgbm

parts = train_test_split(*load_breast_cancer(return_X_y=True), random_state=0)
train, valid = lightgbm.Dataset(parts[0], parts[2]), lightgbm.Dataset(parts[1], parts[3])
params = {"objective": "binary", "metric": ["auc", "binary_logloss"], "num_leaves": 8, "verbose": -1}
booster = lightgbm.train(
    params,
    train,
    num_boost_round=30,
    valid_sets=[train, valid],
    valid_names=["train", "valid"],
    callbacks=[phalanx_lightgbm(), lightgbm.early_stopping(5, verbose=False)],
)
log_booster(booster, metrics={"auc": booster.best_score["valid"]["auc"]})
