"""`manage.py portal`: serve the web pages and the API."""

import contextlib
import gc
import sys
from typing import Any

import uvicorn
from django.core.management.base import BaseCommand

from portal.config.env import Env, env
from portal.config.exposure import check_may_open
from portal.config.http_protocol import (
    BoundedProtocol,
    ConnectionLimits,
    connection_limit,
    protocol_with_limits,
)
from portal.config.supervision.errors import StartError

# Live streams end only when cut: long enough for ordinary requests to finish, short enough that
# Ctrl-C feels immediate.
_GRACE_S = 3
# Training scripts log a metric every few seconds. uvicorn's usual 5 s would close their connection
# in the same moment, and clients do not always repeat a POST.
_IDLE_S = 60
_NOT_STARTED = 3


class Command(BaseCommand):
    """Serves the portal in the foreground until SIGTERM."""

    help = "Serve the portal (uvicorn)."
    requires_system_checks: list[str] = []

    def handle(self, **_options: Any) -> None:
        """Serve. Exits with 2 while it may not be exposed to other machines."""
        settings = env()
        try:
            check_may_open(settings)
        except StartError as error:
            self.stderr.write(f"slipway: {error}", style_func=str)
            sys.exit(2)
        config = uvicorn.Config(
            "portal.config.asgi:application",
            host=settings.bind,
            port=settings.portal_port,
            loop="uvloop",
            http=_protocol(settings),
            ws="none",
            lifespan="off",
            # Django decides which X-Forwarded-* headers to trust (SLIPWAY_TRUSTED_PROXIES).
            proxy_headers=False,
            server_header=False,
            access_log=False,
            log_config=None,
            timeout_graceful_shutdown=_GRACE_S,
            timeout_keep_alive=_IDLE_S,
        )
        config.load()
        _freeze_gc()
        server = uvicorn.Server(config)
        with contextlib.suppress(KeyboardInterrupt):
            server.run()
        if not server.started:
            sys.exit(_NOT_STARTED)


def _protocol(settings: Env) -> type[BoundedProtocol]:
    total = connection_limit()
    per_address = None if settings.trusted_proxies else settings.connections_per_address
    return protocol_with_limits(
        ConnectionLimits(
            head_within_s=settings.head_timeout_s,
            body_window_s=settings.body_timeout_s,
            total=total,
            per_address=per_address,
        )
    )


def _freeze_gc() -> None:
    """Exclude loaded modules from garbage collection.

    A full collection takes about 0.1 s here, and would delay some request.
    """
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
