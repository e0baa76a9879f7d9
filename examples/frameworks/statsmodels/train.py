import mlflow
import statsmodels.api as sm
from sklearn.datasets import load_diabetes

mlflow.statsmodels.autolog(log_models=False)

X, y = load_diabetes(return_X_y=True, as_frame=True)
X = sm.add_constant(X)

with mlflow.start_run():
    results = sm.OLS(y, X).fit()
    print(results.summary())
    mlflow.log_metric("r_squared", results.rsquared)
    mlflow.statsmodels.log_model(
        results,
        name="ols",
        input_example=X.head(3),
        registered_model_name="progression-statsmodels",
    )
