from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from phalanx.tracking.callbacks import log_estimator, log_search

X, X_test, y, y_test = train_test_split(*load_breast_cancer(return_X_y=True), random_state=0)
pipeline = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
search = GridSearchCV(pipeline, {"logisticregression__C": [0.01, 0.1, 1.0]}, cv=3).fit(X, y)
log_search(search)
print(log_estimator(search.best_estimator_, X_test, y_test, log_model=True))
