"""TorchServe: a handler that predicts all rows of a batch at once."""

from model import load
from ts.torch_handler.base_handler import BaseHandler


class Handler(BaseHandler):
    """Rows in, rows out."""

    def initialize(self, context):
        """Load once."""
        self.predict_rows = load()
        self.initialized = True

    def handle(self, data, context):
        """Predict a batch."""
        rows = [request["body"]["x"] for request in data]
        return [{"p": row.tolist()} for row in self.predict_rows(rows)]
