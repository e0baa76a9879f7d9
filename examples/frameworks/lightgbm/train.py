import lightgbm as lgb
import mlflow
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

mlflow.lightgbm.autolog(log_models=False)

X, y = load_diabetes(return_X_y=True, as_frame=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
train, valid = lgb.Dataset(X_train, y_train), lgb.Dataset(X_test, y_test)

with mlflow.start_run():
    booster = lgb.train(
        {"objective": "regression", "metric": "l2", "num_leaves": 15, "verbose": -1},
        train,
        num_boost_round=60,
        valid_sets=[valid],
        valid_names=["valid"],
        callbacks=[lgb.early_stopping(10), lgb.log_evaluation(20)],
    )
    mlflow.lightgbm.log_model(
        booster,
        name="progression",
        input_example=X_test.head(3),
        registered_model_name="progression-lightgbm",
    )
