"""mosec, batching on, with a fast JSON as its docs show."""

import orjson
from model import BATCH, load
from mosec import Server, Worker


class Predictor(Worker):
    """Rows in, rows out."""

    def __init__(self):
        """Load once."""
        self.predict_rows = load()

    def deserialize(self, data):
        """Read a row."""
        return orjson.loads(data)

    def serialize(self, data):
        """Write a row."""
        return orjson.dumps(data)

    def forward(self, data):
        """Predict a batch."""
        return [
            {"p": row.tolist()} for row in self.predict_rows([request["x"] for request in data])
        ]


if __name__ == "__main__":
    server = Server()
    server.append_worker(Predictor, num=1, max_batch_size=BATCH, max_wait_time=2)
    server.run()
