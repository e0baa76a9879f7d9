import keras
import mlflow
import tensorflow as tf
from sklearn.datasets import load_digits

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol=resolver.rpc_layer or "grpc",
    )
    server.join()

strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

images, labels = load_digits(return_X_y=True)
images = (images / 16).astype("float32")
labels = labels.astype("int64")

with strategy.scope():
    shapes = ([64, 64], [64], [64, 10], [10])
    weights = [tf.Variable(tf.random.stateless_normal(shape, (0, 1)) * 0.1) for shape in shapes]
    steps = tf.Variable(0, dtype=tf.int64, trainable=False)


def predict(images):
    hidden = tf.nn.relu(images @ weights[0] + weights[1])
    return hidden @ weights[2] + weights[3]


def read_digits():
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    return dataset.shuffle(len(images)).repeat().batch(64)


@tf.function
def train_step(iterator):
    batch, target = next(iterator)
    with tf.GradientTape() as tape:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(target, predict(batch))
        loss = tf.reduce_mean(losses)
    for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
        weight.assign_sub(0.1 * gradient)
    steps.assign_add(1)
    return loss


iterator = iter(coordinator.create_per_worker_dataset(read_digits))
with mlflow.start_run():
    for epoch in range(5):
        results = [coordinator.schedule(train_step, args=(iterator,)) for _ in range(60)]
        coordinator.join()
        loss = sum(float(result.fetch()) for result in results) / len(results)
        print(f"epoch {epoch} loss {loss:.4f}", flush=True)
        mlflow.log_metric("loss", loss, step=epoch)
    mlflow.log_metric("steps", int(steps.numpy()))
    cluster = resolver.cluster_spec().as_dict()
    mlflow.log_metric("ranks", sum(map(len, cluster.values())))
    model = keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.set_weights([weight.numpy() for weight in weights])
    mlflow.tensorflow.log_model(
        model,
        name="digits",
        signature=mlflow.models.infer_signature(images[:2], model(images[:2]).numpy()),
        registered_model_name="digits-servers",
        pip_requirements="requirements.txt",
    )
