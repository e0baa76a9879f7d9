import os

import jax
import jax.numpy as jnp
import mlflow
import numpy as np
import optax
from flax import nnx
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from sklearn.datasets import load_digits

ranks, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
if ranks > 1:
    hosts = os.environ["SLIPWAY_HOSTS"].split(",")
    jax.distributed.initialize(hosts[0], num_processes=ranks, process_id=rank)

images, labels = load_digits(return_X_y=True)
images = (images / 16).astype(np.float32)
mesh = Mesh(jax.devices(), ("batch",))
sharding = NamedSharding(mesh, PartitionSpec("batch"))


class Classifier(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.hidden = nnx.Linear(64, 64, rngs=rngs)
        self.output = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, images):
        return self.output(nnx.relu(self.hidden(images)))


graph, params = nnx.split(Classifier(nnx.Rngs(0)))
params = jax.tree.map(np.asarray, params)
optimizer = optax.adam(3e-3)
state = optimizer.init(params)


@jax.jit
def step(params, state, images, labels):
    def mean_loss(params):
        scores = nnx.merge(graph, params)(images)
        return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()

    loss, gradients = jax.value_and_grad(mean_loss)(params)
    updates, state = optimizer.update(gradients, state, params)
    return optax.apply_updates(params, updates), state, loss


class Digits(mlflow.pyfunc.PythonModel):
    def __init__(self, weights):
        self.weights = weights

    def predict(self, context, model_input: np.ndarray, params=None):
        first, second = self.weights["hidden"], self.weights["output"]
        hidden = jax.nn.relu(jnp.asarray(model_input) @ first["kernel"] + first["bias"])
        return np.asarray((hidden @ second["kernel"] + second["bias"]).argmax(axis=1))


if rank == 0:
    mlflow.start_run()
    mlflow.log_params({"processes": jax.process_count(), "devices": jax.device_count()})
shuffle = np.random.default_rng(0)
for epoch in range(5):
    order = shuffle.permutation(len(images))[: len(images) // 64 * 64].reshape(-1, 64)
    for rows in order:
        # Each process has its part of the batch.
        own = np.array_split(rows, ranks)[rank]
        batch = jax.make_array_from_process_local_data(sharding, images[own])
        target = jax.make_array_from_process_local_data(sharding, labels[own])
        params, state, loss = step(params, state, batch, target)
    if rank == 0:
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
        mlflow.log_metric("loss", loss.item(), step=epoch)

if rank == 0:
    mlflow.log_metric("ranks", jax.process_count())
    weights = jax.tree.map(np.asarray, nnx.to_pure_dict(params))
    mlflow.pyfunc.log_model(
        python_model=Digits(weights),
        name="digits",
        input_example=images[:2],
        registered_model_name="digits-jax",
    )
    mlflow.end_run()
if ranks > 1:
    multihost_utils.sync_global_devices("the model is logged")
