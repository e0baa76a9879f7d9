from pathlib import Path

import mlflow
import papermill as pm

Path("outputs").mkdir(exist_ok=True)
pm.execute_notebook(
    "report.ipynb", "outputs/report.ipynb", parameters={"alpha": 0.5}, kernel_name="python3"
)
score = pm.inspect_notebook("outputs/report.ipynb")["alpha"]["default"]
with mlflow.start_run():
    mlflow.log_metric("notebooks", 1)
    mlflow.log_artifact("outputs/report.ipynb")
print("default of alpha:", score)
