import keras
import mlflow
import tensorflow as tf
from sklearn.datasets import load_digits

images, labels = load_digits(return_X_y=True)
images = (images / 16).astype("float32")

strategy = tf.distribute.MirroredStrategy()
print("replicas:", strategy.num_replicas_in_sync)
batch_size = 64 * strategy.num_replicas_in_sync
dataset = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(2000, seed=0)

keras.utils.set_random_seed(0)
with strategy.scope():
    model = keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(3e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )


with mlflow.start_run():
    callbacks = [mlflow.tensorflow.MlflowCallback()]
    model.fit(dataset.batch(batch_size), epochs=5, verbose=2, callbacks=callbacks)
    scores = model.predict(images[:2])
    mlflow.log_metric("replicas", strategy.num_replicas_in_sync)
    mlflow.tensorflow.log_model(
        model,
        name="digits",
        signature=mlflow.models.infer_signature(images[:2], scores),
        registered_model_name="digits-mirrored",
        pip_requirements="requirements.txt",
    )
