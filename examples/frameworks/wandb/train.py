import mlflow
import wandb
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

X, y = load_digits(return_X_y=True)
X = X / 16
classifier = SGDClassifier(loss="log_loss", random_state=0)

with (
    wandb.init(project="digits", mode="offline", config={"epochs": 5}) as run,
    mlflow.start_run(),
):
    for epoch in range(run.config.epochs):
        classifier.partial_fit(X, y, classes=range(10))
        accuracy = classifier.score(X, y)
        run.log({"accuracy": accuracy})
        mlflow.log_metric("offline_accuracy", accuracy, step=epoch)
