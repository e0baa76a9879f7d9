"""JupyterLab behind the Hub's sign-in, on a socket that was bound before it was loaded."""

import asyncio
import os
import socket
from typing import Any, Final

import aiohttp
import aiohttp.connector
import zmq
from jupyter_server.serverapp import ServerApp
from jupyterhub.singleuser.extension import JupyterHubSingleUser

from workers.lab.activity import Watch
from workers.lab.contents import Contents, Kernels
from workers.lab.extensions import optional_extensions, require_trusted_repositories
from workers.lab.hosts import hosts_of, refuse_other_hosts
from workers.lab.hub_settings import hub_arguments
from workers.lab.notices import PAGE_EXTENSIONS, add_notices
from workers.lab.reports import Reporter
from workers.lab.workspace import Workspace, current_workspace, forget_variables, legacy_folder
from workers.launcher.rank_env import LISTENER_VARIABLE

_REPORTS: Final = "SLIPWAY_LAB_REPORTS"
_ADDRESS: Final = "SLIPWAY_LAB_ADDRESS"
_PUBLIC_URL: Final = "JUPYTERHUB_PUBLIC_URL"
_LOOPBACK: Final = "127.0.0.1"
_BACKLOG: Final = 256
_HTTP_PORT: Final = 80
_EXTENSIONS: Final = {
    "jupyterlab": True,
    "jupyter_server_terminals": True,
    "slipway.lab_saves": True,
}
_IN_USE: dict[str, Any] = {}


class BoundServer(ServerApp):
    """A server that listens on the socket it is given, and reports once it does."""

    def init_webapp(self) -> None:
        """Refuse other hosts, and give the anti-forgery cookie the attributes of the others."""
        is_https = os.environ.get(_PUBLIC_URL, "").startswith("https://")
        cookie = {"samesite": "Lax"} | ({"secure": True} if is_https else {})
        self.tornado_settings = {**self.tornado_settings, "xsrf_cookie_kwargs": cookie}
        super().init_webapp()
        refuse_other_hosts(self.web_app, _IN_USE["hosts"])

    def _find_http_port(self) -> None:
        """Keep the port that is bound already."""

    def _bind_http_server_tcp(self) -> bool:
        """Start listening, and start reporting to the portal."""
        self.http_server.add_socket(_IN_USE["socket"])
        # Terminals must not start in the server's own folder.
        terminals: Any = self.web_app.settings.get("terminal_manager")
        if terminals is not None:
            terminals.term_settings = {"cwd": self.root_dir}
        watch = Watch(self)
        contents: Any = self.contents_manager
        contents.register_post_save_hook(lambda **_: watch.note_save())
        reporter = Reporter(
            watch,
            url=_IN_USE["reports"],
            token=os.environ.get("SLIPWAY_TOKEN", ""),
            address=_IN_USE["address"],
        )
        add_notices(self, reporter)
        _IN_USE["reporting"] = asyncio.ensure_future(reporter.run())
        return True


async def _trust_the_hub(_: JupyterHubSingleUser) -> None:
    """Do not ask for the Hub's version before listening: a Hub that is away would end the start."""


def use_system_resolver() -> None:
    """Make aiohttp, which JupyterHub uses to call the Hub, use the system's name resolution.

    c-ares, its choice if aiodns is installed, resolves every name below `.localhost` to this
    machine (RFC 6761), although in a container such a name may lead to the Hub.
    """
    connector: Any = aiohttp.connector
    connector.DefaultResolver = aiohttp.ThreadedResolver


def bind() -> tuple[socket.socket, str]:
    """Bind a free port of the node's address. Return the socket and `host:port`.

    A server without network is given a socket that listens outside, and one on a node that cannot
    be dialled a Unix socket. That one's address is the name under which the relay knows it.
    """
    advertised = os.environ.get(_ADDRESS, _LOOPBACK)
    is_here = advertised == _LOOPBACK
    family = socket.AF_INET6 if ":" in advertised else socket.AF_INET
    number = os.environ.pop(LISTENER_VARIABLE, "")
    if number:
        bound = socket.socket(fileno=int(number))
        bound.setblocking(False)
        if bound.family == socket.AF_UNIX:
            return bound, advertised
        return bound, f"{advertised}:{bound.getsockname()[1]}"
    bound = socket.socket(family, socket.SOCK_STREAM)
    everywhere = "::" if family == socket.AF_INET6 else "0.0.0.0"  # noqa: S104 - for other machines
    bound.bind((_LOOPBACK if is_here else everywhere, 0))
    bound.setblocking(False)
    bound.listen(_BACKLOG)
    port = bound.getsockname()[1]
    host = f"[{advertised}]" if ":" in advertised else advertised
    return bound, f"{host}:{port}"


def run(desk: Workspace | None = None) -> None:
    """Serve until a signal to stop."""
    desk = desk or current_workspace()
    desk.prepare(before=legacy_folder(desk))
    bound, address = bind()
    port = _HTTP_PORT if bound.family == socket.AF_UNIX else bound.getsockname()[1]
    prefix = os.environ.get("JUPYTERHUB_SERVICE_PREFIX", "/")
    forget_variables()
    os.environ.update(desk.variables())
    os.environ["JUPYTERHUB_SERVICE_URL"] = f"http://{_LOOPBACK}:{port}{prefix}"
    os.environ["JUPYTERHUB_DISABLE_USER_CONFIG"] = "1"
    os.environ["JUPYTERHUB_DEFAULT_URL"] = "/lab"
    os.chdir(desk.own)
    hosts = hosts_of(os.environ.get(_PUBLIC_URL, ""), address, f"{_LOOPBACK}:{port}")
    _IN_USE.update(socket=bound, address=address, hosts=hosts, reports=os.environ.get(_REPORTS, ""))
    use_system_resolver()
    require_trusted_repositories()
    JupyterHubSingleUser.serverapp_class = BoundServer
    JupyterHubSingleUser.check_hub_version = _trust_the_hub
    JupyterHubSingleUser.serverapp_config = {
        "jpserver_extensions": _EXTENSIONS | optional_extensions(),
        "contents_manager_class": Contents,
        "kernel_manager_class": Kernels,
        "terminado_settings": {"shell_command": desk.terminal_command()},
    }
    JupyterHubSingleUser.launch_instance(
        [
            *desk.arguments(),
            *hub_arguments(),
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
            "--LabApp.news_url=",
            f"--LabApp.extra_labextensions_path={PAGE_EXTENSIONS}",
            # Kernels listen on loopback, where processes of other projects may connect.
            *(["--KernelManager.transport_encryption=auto"] if zmq.has("curve") else []),
            # If it runs as root, it has no capabilities any more.
            "--ServerApp.allow_root=True",
            "--ResourceUseDisplay.track_cpu_percent=True",
            # It compares percents with cores, and would always warn.
            "--ResourceUseDisplay.cpu_warning_threshold=0.0",
            # It would measure every second, for metrics that nobody collects.
            "--ResourceUseDisplay.enable_prometheus_metrics=False",
            # Extensions belong to the environment, which the extension manager would change.
            "--LabApp.extension_manager=readonly",
        ]
    )
