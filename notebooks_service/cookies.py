"""Restricts the Hub's cookies to the Hub, although user code has the same origin.

JupyterHub sets its session id with the path "/" (with subdomains also for the whole domain), so
that servers detect a sign-out. OAuthenticator does the same for the state of a sign-in. Browsers
would send both to every server. Servers of Slipway do not need them: they ask the Hub whether a
token is still valid.
"""

from typing import Any

from jupyterhub.handlers.base import BaseHandler


def cookie_options(url: str) -> dict[str, Any]:
    """Return the options of all cookies of a Hub at `url`."""
    options: dict[str, Any] = {"samesite": "Lax"}
    return options | ({"secure": True} if url.startswith("https://") else {})


def restrict_cookies_to_hub() -> None:
    """Restrict every cookie that the Hub sets or clears to its own path and host."""
    handler: Any = BaseHandler
    set_cookie, clear_cookie = handler._set_cookie, handler.clear_cookie  # noqa: SLF001

    def set_for_hub(self: Any, key: str, value: Any, encrypted: bool = True, **options: Any) -> Any:
        return set_cookie(self, key, value, encrypted, **_hub_cookie_options(self, options))

    def clear_for_hub(self: Any, cookie_name: str, **options: Any) -> Any:
        return clear_cookie(self, cookie_name, **_hub_cookie_options(self, options))

    handler._set_cookie, handler.clear_cookie = set_for_hub, clear_for_hub  # noqa: SLF001


def _hub_cookie_options(handler: Any, options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != "domain"} | {
        "path": handler.hub.base_url
    }
