"""LitServe, batching as its docs show."""

import litserve
import numpy as np
from model import BATCH, DTYPE, PORT, load


class Api(litserve.LitAPI):
    """Rows in, rows out."""

    def setup(self, device):
        """Load once."""
        self.predict_rows = load()

    def decode_request(self, request):
        """Read a row."""
        return np.asarray(request["x"], dtype=DTYPE)

    def batch(self, inputs):
        """Stack the waiting rows."""
        return np.stack(inputs)

    def predict(self, x):
        """Predict a batch."""
        return self.predict_rows(x if x.ndim == 2 else x[None])

    def unbatch(self, output):
        """Split a batch into rows."""
        return list(output)

    def encode_response(self, output):
        """Write a row."""
        return {"p": np.ravel(output).tolist()}


if __name__ == "__main__":
    api = Api(max_batch_size=BATCH, batch_timeout=0.002)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1, fast_queue=True)
    server.run(host="127.0.0.1", port=PORT, log_level="error", generate_client_file=False)
