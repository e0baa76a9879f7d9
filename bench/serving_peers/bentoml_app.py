"""BentoML: bentoml serve bentoml_app:Service."""

from typing import Annotated

import bentoml
import numpy as np
from bentoml.validators import DType, Shape
from model import BATCH, DTYPE, load


@bentoml.service(workers=1, traffic={"timeout": 30})
class Service:
    """Rows in, rows out."""

    def __init__(self):
        """Load once."""
        self.predict_rows = load()

    @bentoml.api(batchable=True, max_batch_size=BATCH, max_latency_ms=1000)
    def predict(self, x: Annotated[np.ndarray, DType(DTYPE), Shape((-1, 64))]) -> np.ndarray:
        """Predict a batch."""
        return self.predict_rows(x)
