"""TorchServe: a handler that takes the rows of a batch together."""

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
        rows = [one["body"]["x"] for one in data]
        return [{"p": row.tolist()} for row in self.predict_rows(rows)]
