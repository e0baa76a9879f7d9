import json
from pathlib import Path

import pandas as pd
import yaml
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

params = yaml.safe_load(Path("params.yaml").read_text())
wine = pd.read_csv("wine.csv")
model = make_pipeline(StandardScaler(), LogisticRegression(C=params["C"]))
scores = cross_val_score(model, wine.drop(columns="target"), wine["target"], cv=params["folds"])
Path("metrics.json").write_text(json.dumps({"dvc_accuracy": scores.mean()}))
