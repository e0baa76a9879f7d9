"""The TorchScript model that every peer serves, on one thread, loaded as in the peers' docs."""

import os

import numpy as np
import torch

KIND = os.environ["BENCH_MODEL"]
DTYPE = "int64" if KIND == "encoder" else "float32"
BATCH = 8 if KIND == "encoder" else 32
PORT = int(os.environ["BENCH_PORT"])


def load():
    """Load the model and return its prediction function, from rows to rows."""
    torch.set_num_threads(1)
    module = torch.jit.load(os.environ["BENCH_FILE"]).eval()

    def predict(rows):
        with torch.inference_mode():
            return module(torch.as_tensor(np.asarray(rows, dtype=DTYPE))).numpy()

    for _ in range(5):
        predict(np.zeros((4, 64)))
    return predict
