"""The network as MLflow serves it: a column of texts in, a section and its confidence out.

A replica hands over what came together as one table, so that many short requests cost one pass.
"""

from typing import Any

import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel, PythonModelContext

from sections import Sections


class Served(PythonModel):
    """Answers for a table of texts."""

    def load_context(self, context: PythonModelContext) -> None:
        """Load the network that was registered with this code."""
        self.sections = Sections.load(context.artifacts["network"])

    def predict(
        self,
        context: PythonModelContext,
        model_input: pd.DataFrame,
        params: dict[str, Any] | None = None,
    ) -> pd.DataFrame:
        """Return a section and how sure it is for each text."""
        told = self.sections.tell([str(one) for one in model_input["text"]])
        return pd.DataFrame(told, columns=["section", "confidence"])


set_model(Served())
