import mlflow
import numpy as np
import pandas as pd
from prophet import Prophet

rng = np.random.default_rng(0)
days = pd.date_range("2024-01-01", periods=730, freq="D")
weekend = np.where(days.dayofweek >= 5, 15, 0)
season = 10 * np.sin(2 * np.pi * days.dayofyear / 365)
visits = pd.DataFrame(
    {"ds": days, "y": 100 + 0.05 * np.arange(730) + weekend + season + rng.normal(0, 3, 730)}
)

with mlflow.start_run():
    model = Prophet().fit(visits[:-28])
    forecast = model.predict(visits[["ds"]].tail(28))
    error = np.abs(forecast["yhat"].to_numpy() - visits["y"].tail(28).to_numpy()).mean()
    print(f"mean absolute error {error:.2f}", flush=True)
    mlflow.log_metric("mean_absolute_error", error)
    mlflow.prophet.log_model(
        model,
        name="visits",
        input_example=visits[["ds"]].tail(3),
        registered_model_name="visits-prophet",
        pip_requirements="requirements.txt",
    )
