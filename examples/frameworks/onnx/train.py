import mlflow
import onnxruntime
from skl2onnx import to_onnx
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

X, y = load_wine(return_X_y=True)
X = X.astype("float32")
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(X_train, y_train)
model = to_onnx(pipeline, X_train[:1], options={"zipmap": False})

session = onnxruntime.InferenceSession(model.SerializeToString())
labels, _ = session.run(None, {"X": X_test})

with mlflow.start_run():
    mlflow.log_metric("onnx_accuracy", float((labels == y_test).mean()))
    mlflow.onnx.log_model(
        model,
        name="wine",
        input_example=X[:2],
        registered_model_name="wine-onnx",
        pip_requirements="requirements.txt",
    )
