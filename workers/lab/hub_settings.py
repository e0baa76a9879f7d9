"""Settings that JupyterHub reads from the environment while it is imported.

A server is forked from a process that imported JupyterHub before the variables of this start were
known. What was read then is given again on the command line, which takes precedence. Otherwise the
cookie that opens a server would have the path "/", and browsers would send it to every server.
"""

import os
from typing import Final

_FALSE: Final = frozenset({"0", "false"})
# Variable → trait of HubOAuth, and its value if the variable is not set.
READ_AT_IMPORT: Final[dict[str, tuple[str, str | bool]]] = {
    "JUPYTERHUB_SERVICE_PREFIX": ("base_url", "/"),
    "JUPYTERHUB_API_URL": ("api_url", "http://127.0.0.1:8081/hub/api"),
    "JUPYTERHUB_SSL_KEYFILE": ("keyfile", ""),
    "JUPYTERHUB_SSL_CERTFILE": ("certfile", ""),
    "JUPYTERHUB_SSL_CLIENT_CA": ("client_ca", ""),
    "JUPYTERHUB_ALLOW_TOKEN_IN_URL": ("allow_token_in_url", False),
    "JUPYTERHUB_ALLOW_WEBSOCKET_COOKIE_AUTH": ("allow_websocket_cookie_auth", True),
}
# Also read at import, but equal for all servers: Slipway sets none of them per server.
SAME_FOR_ALL: Final = frozenset(
    {
        *("JUPYTERHUB_SINGLEUSER_APP", "JUPYTERHUB_SINGLEUSER_EXTENSION"),
        *("JUPYTERHUB_SINGLEUSER_LOAD_OTHER_EXTENSIONS", "JUPYTERHUB_METRICS_PREFIX"),
        "JUPYTERHUB_SERVER_SPAWN_DURATION_SECONDS_BUCKETS",
        "JUPYTERHUB_SERVER_STOP_DURATION_SECONDS_BUCKETS",
        *("JUPYTERHUB_XSRF_ANONYMOUS_ID_HEADERS", "JUPYTERHUB_XSRF_ANONYMOUS_IP_CIDRS"),
    }
)


def hub_arguments() -> list[str]:
    """Return the settings of this start as arguments of the server."""
    return [
        f"--HubOAuth.{trait}={_value(variable, default)}"
        for variable, (trait, default) in READ_AT_IMPORT.items()
    ]


def _value(variable: str, default: str | bool) -> str | bool:
    given = os.environ.get(variable, "")
    if isinstance(default, bool):
        return given.lower() not in _FALSE if given else default
    return given or default
