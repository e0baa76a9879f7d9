"""The model as an MLflow python_function."""

import mlflow
from model import load


class Predictor(mlflow.pyfunc.PythonModel):
    """Rows in, rows out."""

    def load_context(self, context):
        """Load once."""
        self.predict_rows = load()

    def predict(self, context, model_input, params=None):
        """Predict a batch."""
        return self.predict_rows(model_input)


mlflow.models.set_model(Predictor())
