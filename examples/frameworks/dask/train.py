import dask
import joblib
import mlflow
from dask.distributed import Client, LocalCluster
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC


def main():
    with LocalCluster(n_workers=2, threads_per_worker=1) as cluster, Client(cluster) as client:
        frame = dask.datasets.timeseries(end="2000-01-08", partition_freq="1d")
        means = frame.groupby("name").x.mean().compute()

        X, y = load_digits(return_X_y=True)
        search = GridSearchCV(SVC(), {"C": [0.1, 1.0, 10.0]}, cv=3)
        with joblib.parallel_backend("dask"):
            search.fit(X, y)

        with mlflow.start_run():
            mlflow.log_metric("names", len(means))
            mlflow.log_metric("workers", len(client.scheduler_info()["workers"]))
            mlflow.log_metric("search_accuracy", search.best_score_)
            mlflow.sklearn.log_model(
                search.best_estimator_,
                name="digits",
                input_example=X[:2],
                registered_model_name="digits-dask",
                pip_requirements="requirements.txt",
            )


if __name__ == "__main__":
    main()
