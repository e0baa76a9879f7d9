"""The Hub's application: JupyterHub with our settings, which follows the portal's servers."""

import asyncio
import json
import os
import secrets
from argparse import Namespace
from pathlib import Path
from typing import Any, Final

import httpx
from jupyterhub.app import JupyterHub
from traitlets.config import Config

from notebooks_service.authenticator import SlipwayAuthenticator
from notebooks_service.cookies import cookie_options, restrict_cookies_to_hub
from notebooks_service.hosts import refuse_other_hosts
from notebooks_service.portal import Portal
from notebooks_service.relay import ThroughRelay
from notebooks_service.route_sync import Follower, HubApi, ProxyCallbacks
from notebooks_service.spawner import SlipwaySpawner
from slipway.schemas.hosts import AllowedHosts

_LOOPBACK: Final = "127.0.0.1"
_CLIENT_ID: Final = "notebooks"
_START_WITHIN_S: Final = 24 * 3600
_ANSWERS_WITHIN_S: Final = 30
_POLL_EVERY_S: Final = 30
_PROXY_PATIENCE_S: Final = 5.0
_FORBIDDEN: Final = 403
# Limit for a complete head, and for an idle connection: tornado has one timeout for both.
_HEAD_TIMEOUT_S: Final = 30.0
_BODY_TIMEOUT_S: Final = 60.0


class SlipwayHub(JupyterHub):  # type: ignore[misc]
    """JupyterHub that syncs with the portal's list of servers."""

    portal: Portal
    hub_api: HubApi
    allowed_hosts: AllowedHosts
    follower: Follower
    _following: list[asyncio.Task[None]]

    def init_tornado_application(self) -> None:
        """Accept requests to the notebooks' addresses, and from this machine."""
        super().init_tornado_application()
        refuse_other_hosts(self.tornado_application, self.allowed_hosts)

    async def start(self) -> None:
        """Start JupyterHub, then follow the portal."""
        await super().start()
        # JupyterHub has no settings for these. Tornado's defaults are an hour and no limit.
        limits = self.http_server.conn_params
        limits.header_timeout, limits.body_timeout = _HEAD_TIMEOUT_S, _BODY_TIMEOUT_S
        self.follower = Follower(
            self.portal, self.hub_api, ProxyCallbacks(self._check_routes, self._check_proxy)
        )
        self._following = [
            asyncio.create_task(self.follower.run()),
            asyncio.create_task(self.follower.restore_routes()),
        ]

    async def _check_routes(self) -> None:
        await self.proxy.check_routes(self.users, self._service_map)

    async def _check_proxy(self) -> None:
        """Check that the proxy responds, or raise httpx.HTTPError."""
        headers = {"Authorization": f"token {self.proxy.auth_token}"}
        async with httpx.AsyncClient(headers=headers, timeout=_PROXY_PATIENCE_S) as http:
            answer = await http.get(f"{self.proxy.api_url}/api/routes/hub")
        if answer.is_server_error or answer.status_code == _FORBIDDEN:
            answer.raise_for_status()


def subdomain_of(name: str, domain: str, kind: str) -> str:
    """Return the host of a person's servers. Underscores of ids are not allowed in host names."""
    return f"{name.replace('_', '-')}.{domain}"


def settings_of(arguments: Namespace, admission: dict[str, str], service_token: str) -> Config:
    """Return the Hub's settings. Comments next to them give the reasons."""
    folder = Path(arguments.data_dir)
    config = Config()
    hub = config.JupyterHub
    hub.hub_bind_url = f"http://{_LOOPBACK}:{arguments.hub_port}"
    hub.hub_connect_url = hub.hub_bind_url
    hub.bind_url = arguments.url
    hub.db_url = f"sqlite:///{folder / 'hub.sqlite'}"
    hub.cookie_secret_file = str(folder / "cookie_secret")
    hub.pid_file = ""
    # Servers are workloads: they keep running without the Hub and without the proxy.
    hub.cleanup_servers = False
    hub.cleanup_proxy = False
    hub.allow_named_servers = True
    hub.default_server_name = ""
    hub.oauth_require_pkce = True
    hub.authenticate_prometheus = True
    # The portal has the pages. The Hub only shows those for signing in.
    hub.default_url = f"{arguments.public_portal_url}/projects"
    hub.template_vars = {"announcement": ""}
    hub.log_level = "WARN"
    hub.tornado_settings = {
        "slow_spawn_timeout": 0,
        "cookie_options": cookie_options(arguments.url),
        "xsrf_cookie_kwargs": cookie_options(arguments.url),
    }
    hub.init_spawners_timeout = 1
    if arguments.subdomains:
        hub.subdomain_host = arguments.url
        hub.subdomain_hook = subdomain_of
    else:
        hub.public_url = f"{arguments.url}/"
    hub.services = [{"name": "slipway", "api_token": service_token}]
    hub.load_roles = _roles()
    _proxy(config, arguments, admission)
    _sign_in(config, arguments, admission)
    _spawner(config, arguments, admission)
    return config


def _roles() -> list[dict[str, Any]]:
    """Users may access their own servers and nothing else: the portal starts and stops servers."""
    return [
        {
            "name": "slipway",
            "services": ["slipway"],
            "scopes": ["admin:users", "admin:servers", "admin:server_state", "list:users"],
        },
        {
            "name": "user",
            "scopes": ["access:servers!user", "read:users!user", "users:activity!user"],
        },
    ]


def _proxy(config: Config, arguments: Namespace, admission: dict[str, str]) -> None:
    """Configure the proxy as a separate process, so that connections outlive the Hub."""
    config.ConfigurableHTTPProxy.should_start = False
    config.ConfigurableHTTPProxy.api_url = f"http://{_LOOPBACK}:{arguments.proxy_port}"
    config.ConfigurableHTTPProxy.auth_token = admission["proxy_secret"]
    through_relay = ThroughRelay(Path(arguments.relay_folder))
    config.JupyterHubHTTPClient.session_options = {"middlewares": (through_relay,)}


def _sign_in(config: Config, arguments: Namespace, admission: dict[str, str]) -> None:
    """Authenticate through the portal. Users with a portal session see no other sign-in page."""
    config.JupyterHub.authenticator_class = SlipwayAuthenticator
    sign_in = config.SlipwayAuthenticator
    sign_in.client_id = _CLIENT_ID
    sign_in.client_secret = admission["client_secret"]
    sign_in.oauth_callback_url = f"{arguments.url}/hub/oauth_callback"
    sign_in.authorize_url = f"{arguments.public_portal_url}/o/authorize/"
    sign_in.token_url = f"{arguments.portal_url}/o/token/"
    sign_in.userdata_url = f"{arguments.portal_url}/o/userinfo/"
    sign_in.userdata_from_id_token = False
    sign_in.username_claim = "sub"
    sign_in.scope = ["openid", "profile"]
    sign_in.enable_pkce = True
    sign_in.allow_all = True
    sign_in.auto_login = True


def _spawner(config: Config, arguments: Namespace, admission: dict[str, str]) -> None:
    config.JupyterHub.spawner_class = SlipwaySpawner
    config.SlipwaySpawner.portal = Portal(arguments.portal_url, admission["token"])
    config.SlipwaySpawner.start_timeout = _START_WITHIN_S
    config.SlipwaySpawner.http_timeout = _ANSWERS_WITHIN_S
    config.SlipwaySpawner.poll_interval = _POLL_EVERY_S
    config.SlipwaySpawner.default_url = "/lab"


async def _launch(arguments: Namespace, admission: dict[str, str]) -> None:
    service_token = secrets.token_hex(32)
    os.umask(0o077)
    restrict_cookies_to_hub()
    app = SlipwayHub.instance(config=settings_of(arguments, admission, service_token))
    app.portal = Portal(arguments.portal_url, admission["token"])
    app.hub_api = HubApi(f"http://{_LOOPBACK}:{arguments.hub_port}/hub/api", service_token)
    app.allowed_hosts = AllowedHosts.of_url(
        arguments.url,
        with_subdomains=arguments.subdomains,
        urls=[f"http://{_LOOPBACK}:{arguments.hub_port}"],
    )
    await app.initialize([])
    await app.start()


def run(arguments: Namespace) -> None:
    """Serve until stopped."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    admission: dict[str, str] = json.loads(Path(arguments.admission).read_text("utf-8"))
    loop.run_until_complete(_launch(arguments, admission))
    loop.run_forever()
