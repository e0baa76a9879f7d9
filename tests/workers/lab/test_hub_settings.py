"""A server that is forked from a warm process knows the Hub as if it had been started alone."""

import json
import os
import subprocess
import sys

import pytest

from tests.processes import ROOT
from workers.lab.hub_settings import READ_AT_IMPORT, SAME_FOR_ALL

_START = {
    "JUPYTERHUB_SERVICE_PREFIX": "/user/usr_1/nbs-1/",
    "JUPYTERHUB_API_URL": "http://127.0.0.1:1234/hub/api",
    "JUPYTERHUB_API_TOKEN": "of this start",
    "JUPYTERHUB_CLIENT_ID": "jupyterhub-user-usr_1-nbs-1",
    "JUPYTERHUB_HOST": "http://notebooks.example.org",
    "JUPYTERHUB_BASE_URL": "/base/",
    "JUPYTERHUB_OAUTH_ACCESS_SCOPES": '["access:servers!server=usr_1/nbs-1"]',
    "JUPYTERHUB_OAUTH_CALLBACK_URL": "/user/usr_1/nbs-1/oauth_callback",
    "JUPYTERHUB_SSL_KEYFILE": "/keys/own.key",
    "JUPYTERHUB_SSL_CERTFILE": "/keys/own.crt",
    "JUPYTERHUB_SSL_CLIENT_CA": "/keys/ca.crt",
    "JUPYTERHUB_ALLOW_TOKEN_IN_URL": "1",
    "JUPYTERHUB_ALLOW_WEBSOCKET_COOKIE_AUTH": "0",
    "JUPYTERHUB_COOKIE_HOST_PREFIX_ENABLED": "0",
    "JUPYTERHUB_COOKIE_OPTIONS": '{"samesite": "Lax"}',
}
# Imports what the warm process does, before or after the variables of a start are there.
_PROGRAM = """
import importlib, json, os, sys
from contextlib import suppress
start, is_warm = json.loads(sys.argv[1]), sys.argv[2] == "warm"
read = set()
get = os._Environ.__getitem__
def noted(self, name):
    read.add(str(name))
    return get(self, name)
if is_warm:
    os._Environ.__getitem__ = noted
else:
    os.environ.update(start)
from workers.launcher.platform_programs import PLATFORM_PROGRAMS
for name in PLATFORM_PROGRAMS["jupyterlab"].imports:
    with suppress(ImportError):
        importlib.import_module(name)
os._Environ.__getitem__ = get
os.environ.update(start)
from jupyterhub.services.auth import HubOAuth
from traitlets.config import Application
from workers.lab.hub_settings import hub_arguments
app = Application()
app.classes = [HubOAuth]
app.parse_command_line(hub_arguments() if is_warm else [])
auth = HubOAuth(parent=app)
names = sorted(auth.trait_names(config=True))
values = {name: repr(getattr(auth, name)) for name in names if not name.startswith("cookie_cache")}
values["cookie_path"] = auth.cookie_path
print("values " + json.dumps([values, sorted(name for name in read if "JUPYTERHUB" in name)]))
"""


def _values(kind: str) -> tuple[dict[str, str], list[str]]:
    clean = {name: value for name, value in os.environ.items() if "JUPYTER" not in name}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps(_START), kind],
        env=clean | {"PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("values "))
    values, read = json.loads(line.removeprefix("values "))
    return values, read


@pytest.mark.thorough
def test_a_forked_server_has_the_settings_of_its_own_start() -> None:
    warm, _ = _values("warm")
    cold, _ = _values("cold")
    assert warm == cold
    assert warm["cookie_path"] == _START["JUPYTERHUB_SERVICE_PREFIX"]


@pytest.mark.thorough
def test_whatever_is_read_at_import_is_given_again() -> None:
    """A newer JupyterHub may read more of the environment while it is imported."""
    _, read = _values("warm")
    assert set(read) - SAME_FOR_ALL == set(READ_AT_IMPORT)
