import xgboost
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from phalanx.tracking.callbacks import PhalanxXGBoost

parts = train_test_split(*load_breast_cancer(return_X_y=True), random_state=0)
train, valid = xgboost.DMatrix(parts[0], parts[2]), xgboost.DMatrix(parts[1], parts[3])
params = {"objective": "binary:logistic", "max_depth": 3, "eta": 0.3, "eval_metric": ["logloss", "auc"]}
xgboost.train(
    params,
    train,
    num_boost_round=30,
    evals=[(train, "train"), (valid, "valid")],
    early_stopping_rounds=5,
    verbose_eval=False,
    callbacks=[PhalanxXGBoost(log_model=True)],
)
