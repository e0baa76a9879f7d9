import ipywidgets as widgets
import mlflow
from ipywidgets.embed import embed_minimal_html

slider = widgets.FloatSlider(value=0.3, max=1, description="threshold")
counts = widgets.IntText(description="above")


def count(change):
    counts.value = sum(value / 10 > change["new"] for value in range(10))


slider.observe(count, names="value")
slider.value = 0.5

embed_minimal_html("threshold.html", views=[slider, counts], title="Threshold")
with mlflow.start_run():
    mlflow.log_metric("above", counts.value)
    mlflow.log_artifact("threshold.html")
