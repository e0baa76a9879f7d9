import json
from pathlib import Path

import mlflow
import pandas as pd
from pricing.rules import discount


class Prices(mlflow.pyfunc.PythonModel):
    def load_context(self, context):
        self.prices = json.loads(Path(context.artifacts["prices"]).read_text())

    def predict(self, context, model_input: pd.DataFrame, params=None):
        list_price = model_input["product"].map(self.prices)
        return list_price * model_input["amount"] * model_input["amount"].map(discount)


Path("prices.json").write_text(json.dumps({"apple": 0.5, "pear": 0.8, "melon": 3.0}))
orders = pd.DataFrame({"product": ["apple", "melon"], "amount": [10, 2]})

with mlflow.start_run():
    mlflow.log_metric("products", 3)
    mlflow.pyfunc.log_model(
        python_model=Prices(),
        name="prices",
        artifacts={"prices": "prices.json"},
        code_paths=["pricing"],
        input_example=orders,
        registered_model_name="prices-pyfunc",
    )
