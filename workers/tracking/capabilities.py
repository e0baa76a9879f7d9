"""What MLflow tells its clients that it can do: no more than the portal lets through."""

from fastapi import FastAPI
from mlflow.server.handlers import build_server_info_payload
from mlflow.utils.server_info import (
    SERVER_INFO_MULTIPART_DOWNLOADS_ENABLED,
    SERVER_INFO_MULTIPART_UPLOADS_ENABLED,
)
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

_PATH = "/api/3.0/mlflow/server-info"


def _tell(_: Request) -> JSONResponse:
    return JSONResponse(
        build_server_info_payload()
        | {
            SERVER_INFO_MULTIPART_UPLOADS_ENABLED: False,
            SERVER_INFO_MULTIPART_DOWNLOADS_ENABLED: False,
        }
    )


def limit(app: FastAPI) -> None:
    """Have `app` say that artifacts go through it alone.

    On a bucket it would offer clients addresses to go there themselves, past every gate; clients
    that were told so do not come back to the way that is open.
    """
    app.router.routes.insert(0, Route(_PATH, _tell))
