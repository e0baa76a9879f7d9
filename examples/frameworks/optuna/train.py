import mlflow
import optuna
from sklearn.datasets import load_wine
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

X, y = load_wine(return_X_y=True)


def objective(trial):
    params = {
        "C": trial.suggest_float("C", 1e-2, 1e2, log=True),
        "gamma": trial.suggest_float("gamma", 1e-4, 1.0, log=True),
    }
    with mlflow.start_run(run_name=f"trial-{trial.number}", nested=True):
        mlflow.log_params(params)
        model = make_pipeline(StandardScaler(), SVC(**params))
        accuracy = cross_val_score(model, X, y, cv=3).mean()
        mlflow.log_metric("accuracy", accuracy)
    return accuracy


with mlflow.start_run():
    study = optuna.create_study(
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=0),
        storage="sqlite:///study.db",
    )
    study.optimize(objective, n_trials=12)
    mlflow.log_params(study.best_params)
    mlflow.log_metric("best_accuracy", study.best_value)
    mlflow.sklearn.log_model(
        make_pipeline(StandardScaler(), SVC(**study.best_params)).fit(X, y),
        name="wine",
        input_example=X[:2],
        registered_model_name="wine-optuna",
        pip_requirements="requirements.txt",
    )
