import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import mlflow
from sklearn.datasets import load_digits

images, labels = load_digits(return_X_y=True)
images = (images / 16).astype("float32")

keras.utils.set_random_seed(0)
model = keras.Sequential(
    [
        keras.Input((64,)),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
model.compile(
    optimizer=keras.optimizers.Adam(3e-3),
    loss="sparse_categorical_crossentropy",
    metrics=["accuracy"],
)

with mlflow.start_run():
    mlflow.log_param("backend", keras.backend.backend())
    model.fit(
        images,
        labels,
        epochs=5,
        batch_size=64,
        validation_split=0.2,
        verbose=2,
        callbacks=[mlflow.keras.MlflowCallback()],
    )
    mlflow.keras.log_model(
        model,
        name="digits",
        signature=mlflow.models.infer_signature(images[:2], model.predict(images[:2], verbose=0)),
        registered_model_name="digits-keras-torch",
        pip_requirements="requirements.txt",
    )
