import mlflow
import numpy as np
import pandas as pd
from catboost import CatBoostClassifier, Pool

rng = np.random.default_rng(0)
plans = pd.DataFrame(
    {
        "city": rng.choice(["Berlin", "Oslo", "Rome"], 600),
        "plan": rng.choice(["free", "pro", "team"], 600),
        "age": rng.integers(18, 80, 600).astype(float),
    }
)
churned = ((plans["plan"] == "free") & (plans["age"] < 50)).astype(int)
train = Pool(plans[:450], churned[:450], cat_features=["city", "plan"])
test = Pool(plans[450:], churned[450:], cat_features=["city", "plan"])

with mlflow.start_run():
    model = CatBoostClassifier(iterations=60, depth=4, eval_metric="Accuracy")
    model.fit(train, eval_set=test, verbose=20)
    mlflow.log_params({"iterations": 60, "depth": 4})
    mlflow.log_metric("accuracy", model.score(test))
    mlflow.catboost.log_model(
        model, name="churn", input_example=plans.head(3), registered_model_name="churn-catboost"
    )
