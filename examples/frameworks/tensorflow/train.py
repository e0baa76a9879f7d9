import keras
import mlflow
import tensorflow as tf
from sklearn.datasets import load_digits

strategy = tf.distribute.MultiWorkerMirroredStrategy()
is_chief = not strategy.cluster_resolver.task_id

images, labels = load_digits(return_X_y=True)
images = (images / 16).astype("float32")
batch_size = 64
dataset = tf.data.Dataset.from_tensor_slices((images, labels))
dataset = dataset.shuffle(len(images), seed=0).batch(batch_size, drop_remainder=True)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
dataset = strategy.experimental_distribute_dataset(dataset.with_options(options))


def build_model():
    return keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


keras.utils.set_random_seed(0)
with strategy.scope():
    model = build_model()
    optimizer = keras.optimizers.Adam(3e-3)
    optimizer.build(model.trainable_variables)
    cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")


@tf.function
def train_step(batch):
    def step(images, labels):
        with tf.GradientTape() as tape:
            losses = cross_entropy(labels, model(images, training=True))
            loss = tf.nn.compute_average_loss(losses, global_batch_size=batch_size)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    losses = strategy.run(step, args=batch)
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


@tf.function
def count_workers():
    ones = strategy.run(lambda: tf.constant(1))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, ones, axis=None)


if is_chief:
    mlflow.start_run()
for epoch in range(5):
    for batch in dataset:
        loss = train_step(batch)
    if is_chief:
        print(f"epoch {epoch} loss {float(loss):.4f}", flush=True)
        mlflow.log_metric("loss", float(loss), step=epoch)

workers = int(count_workers())
if is_chief:
    mlflow.log_metric("ranks", workers)
    trained = build_model()
    trained.set_weights(model.get_weights())
    scores = trained(images[:2]).numpy()
    mlflow.tensorflow.log_model(
        trained,
        name="digits",
        signature=mlflow.models.infer_signature(images[:2], scores),
        input_example=images[:2],
        registered_model_name="digits-tensorflow",
        pip_requirements="requirements.txt",
    )
    mlflow.end_run()
count_workers()  # the other workers stay until the chief has finished
