"""MLServer: a custom runtime with adaptive batching."""

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse
from model import load


class Predictor(MLModel):
    """Rows in, rows out."""

    async def load(self):
        """Load once."""
        self.predict_rows = load()
        return True

    async def predict(self, payload):
        """Predict a batch."""
        rows = NumpyCodec.decode_input(payload.inputs[0])
        output = NumpyCodec.encode_output("p", self.predict_rows(rows))
        return InferenceResponse(model_name=self.name, outputs=[output])
