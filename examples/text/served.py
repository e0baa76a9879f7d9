"""The classifier as an MLflow model: a column of texts in, sections and confidences out.

A replica merges concurrent requests into one table, so that many short requests cost one pass.
"""

from typing import Any

import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel, PythonModelContext

from sections import Sections


class Served(PythonModel):
    """Predicts the sections of a table of texts."""

    def load_context(self, context: PythonModelContext) -> None:
        """Load the network that was registered with this code."""
        self.sections = Sections.load(context.artifacts["network"])

    def predict(
        self,
        context: PythonModelContext,
        model_input: pd.DataFrame,
        params: dict[str, Any] | None = None,
    ) -> pd.DataFrame:
        """Return a section and its confidence for each text."""
        predicted = self.sections.predict([str(text) for text in model_input["text"]])
        return pd.DataFrame(predicted, columns=["section", "confidence"])


set_model(Served())
