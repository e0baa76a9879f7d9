import mlflow
import xgboost as xgb
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import accuracy_score
from sklearn.model_selection import train_test_split

mlflow.xgboost.autolog(log_models=False)

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

with mlflow.start_run():
    model = xgb.XGBClassifier(n_estimators=50, max_depth=3, early_stopping_rounds=5)
    model.fit(X_train, y_train, eval_set=[(X_test, y_test)], verbose=False)
    mlflow.log_metric("accuracy", accuracy_score(y_test, model.predict(X_test)))
    mlflow.xgboost.log_model(
        model, name="tumours", input_example=X_test.head(3), registered_model_name="tumours-xgboost"
    )
