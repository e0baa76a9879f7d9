"""Environment variables of MLflow's server, set before it is imported."""

import os
from collections.abc import MutableMapping

# Allowed sources of a model version: our own artifacts, a run, a model, and the value that MLflow
# writes for prompts, which have no files.
_SOURCES = r"^(mlflow-artifacts:|runs:|models:|dummy-source$|prompt-template$)"


def configure(environ: MutableMapping[str, str], *, store: str, artifacts: str) -> None:
    """Set the locations of the database and the files, and disable all unneeded features."""
    environ.update(
        {
            "_MLFLOW_SERVER_FILE_STORE": store,
            "_MLFLOW_SERVER_REGISTRY_STORE": store,
            "_MLFLOW_SERVER_ARTIFACT_ROOT": "mlflow-artifacts:/",
            "_MLFLOW_SERVER_ARTIFACT_DESTINATION": artifacts,
            "_MLFLOW_SERVER_SERVE_ARTIFACTS": "true",
            "MLFLOW_ENABLE_WORKSPACES": "true",
            "MLFLOW_WORKSPACE_STORE_URI": "slipway://projects",
            "MLFLOW_CREATE_MODEL_VERSION_SOURCE_VALIDATION_REGEX": _SOURCES,
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_ALLOW_MODEL_CODE_EXECUTION": "false",
            "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
            "MLFLOW_ALLOW_HTTP_REDIRECTS": "false",
            "MLFLOW_ENABLE_REMOTE_ASSISTANT": "false",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "DO_NOT_TRACK": "true",
        }
    )
    # A Unix socket has no host name: MLflow's Host check would only refuse the portal.
    environ.setdefault("MLFLOW_SERVER_ALLOWED_HOSTS", "tracking")


def pop_variable(name: str) -> str:
    """Return a variable and remove it, so that nothing the server starts could inherit it."""
    return os.environ.pop(name, "")
