"""Rows of the framework matrix: the frameworks, in the order of `docs/frameworks.md`."""

import json
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "frameworks"

# MLflow 3.17 cannot save the input example of a model of Keras 3.
_DIGITS = json.dumps({"inputs": [[0.5] * 64] * 2})


@dataclass(frozen=True)
class Row:
    """A framework and its quickstart, a folder of `examples/frameworks`.

    `packages` are those whose versions are shown. `ranks` is at least 2 if the quickstart
    distributes; it runs on `first_ranks`, too, if they are less. `framework` is the option of a job
    on several ranks. `model` is the registered model that it logs, empty if it logs none.
    `metric` is one that its run must have. `changed` names what a user has to change for Slipway.
    `artifact` is the beginning of the path of a file that the run must have. `example` is the body
    of a prediction, for a library that cannot record one.
    """

    name: str
    title: str
    packages: tuple[str, ...]
    metric: str
    model: str = ""
    ranks: int = 1
    first_ranks: int = 1
    framework: str = ""
    artifact: str = ""
    changed: str = ""
    example: str = ""

    @property
    def folder(self) -> Path:
        """The folder with `train.py` and `requirements.txt`."""
        return FOLDER / self.name


ROWS = (
    Row("scikit_learn", "scikit-learn", ("scikit-learn",), "test_accuracy", "wine"),
    Row("xgboost", "XGBoost", ("xgboost",), "accuracy", "tumours-xgboost"),
    Row("lightgbm", "LightGBM", ("lightgbm",), "valid-l2", "progression-lightgbm"),
    Row("catboost", "CatBoost", ("catboost",), "accuracy", "churn-catboost"),
    Row("statsmodels", "statsmodels", ("statsmodels",), "r_squared", "progression-statsmodels"),
    Row("pytorch", "PyTorch, DDP", ("torch",), "ranks", "digits-pytorch", ranks=2),
    Row("lightning", "Lightning", ("lightning", "torch"), "ranks", "digits-lightning", ranks=2),
    Row(
        "transformers",
        "Hugging Face Trainer",
        ("transformers", "accelerate", "torch"),
        "ranks",
        "sentiment-transformers",
        ranks=2,
    ),
    Row("accelerate", "accelerate", ("accelerate", "torch"), "ranks", "digits-accelerate", ranks=2),
    Row(
        "sentence_transformers",
        "sentence-transformers",
        ("sentence-transformers", "transformers", "torch"),
        "ranks",
        "sentences",
        ranks=2,
    ),
    Row(
        "deepspeed",
        "DeepSpeed, ZeRO 2",
        ("deepspeed", "torch"),
        "ranks",
        "digits-deepspeed",
        ranks=2,
    ),
    Row("pyg", "PyG", ("torch-geometric", "torch"), "node_accuracy", "members-pyg"),
    Row(
        "tensorflow",
        "TensorFlow, MultiWorkerMirroredStrategy",
        ("tensorflow", "keras"),
        "ranks",
        "digits-tensorflow",
        ranks=2,
    ),
    Row(
        "tensorflow_mirrored",
        "TensorFlow, MirroredStrategy",
        ("tensorflow", "keras"),
        "replicas",
        "digits-mirrored",
        example=_DIGITS,
    ),
    Row(
        "tensorflow_servers",
        "TensorFlow, ParameterServerStrategy",
        ("tensorflow", "keras"),
        "ranks",
        "digits-servers",
        ranks=3,
        first_ranks=3,
        framework="parameter_server",
        example=_DIGITS,
    ),
    Row(
        "keras_jax",
        "Keras on JAX",
        ("keras", "jax"),
        "val_accuracy",
        "digits-keras-jax",
        example=_DIGITS,
    ),
    Row(
        "keras_torch",
        "Keras on torch",
        ("keras", "torch"),
        "val_accuracy",
        "digits-keras-torch",
        example=_DIGITS,
    ),
    Row(
        "jax",
        "JAX and Flax, jax.distributed",
        ("jax", "flax", "optax"),
        "ranks",
        "digits-jax",
        ranks=2,
        changed="the addresses for `jax.distributed.initialize`",
    ),
    Row(
        "ray",
        "Ray Train, Tune and Data",
        ("ray", "torch"),
        "workers",
        "progression-ray",
        ranks=2,
        framework="ray",
    ),
    Row("optuna", "Optuna", ("optuna",), "best_accuracy", "wine-optuna"),
    Row("onnx", "ONNX", ("onnx", "onnxruntime", "skl2onnx"), "onnx_accuracy", "wine-onnx"),
    Row("dask", "Dask", ("dask", "distributed"), "search_accuracy", "digits-dask"),
    Row("spacy", "spaCy", ("spacy",), "cats_score", "sentiment-spacy"),
    Row("prophet", "Prophet", ("prophet",), "mean_absolute_error", "visits-prophet"),
    Row("dvc", "DVC", ("dvc",), "dvc_accuracy", artifact="files/dvc.lock"),
    Row("pyfunc", "MLflow pyfunc, code and artifacts", ("mlflow",), "products", "prices-pyfunc"),
    Row(
        "hydra",
        "Hydra",
        ("hydra-core",),
        "hydra_accuracy",
        artifact="files/outputs",
    ),
    Row(
        "wandb", "W&B, offline", ("wandb",), "offline_accuracy", artifact="files/wandb/offline-run"
    ),
    Row("tensorboard", "TensorBoard", ("tensorboard",), "events_loss", artifact="files/runs"),
    Row("papermill", "papermill", ("papermill",), "notebooks", artifact="report.ipynb"),
    Row("ipywidgets", "ipywidgets", ("ipywidgets",), "above", artifact="threshold.html"),
)
BY_NAME = {row.name: row for row in ROWS}
