"""Ray Serve, one replica, batching as its docs show."""

import ray
from model import BATCH, PORT, load
from ray import serve
from starlette.requests import Request


@serve.deployment(ray_actor_options={"num_cpus": 0.1}, max_ongoing_requests=256)
class Predictor:
    """Rows in, rows out."""

    def __init__(self):
        """Load once."""
        self.predict_rows = load()

    @serve.batch(max_batch_size=BATCH, batch_wait_timeout_s=0.002)
    async def predict(self, rows):
        """Predict a batch."""
        return [row.tolist() for row in self.predict_rows(rows)]

    async def __call__(self, request: Request):
        """Read a row, write a row."""
        body = await request.json()
        return {"p": await self.predict(body["x"])}


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, configure_logging=False)
    serve.start(http_options={"host": "127.0.0.1", "port": PORT})
    serve.run(Predictor.bind(), route_prefix="/predict", blocking=True)
