"""Every URL of the portal."""

from allauth.account import views as account
from django.urls import URLPattern, URLResolver, include, path, re_path
from oauth2_provider import views as oidc

from portal.api.agent.root import agent_api
from portal.api.gateway.root import gateway_api
from portal.api.health import healthz, metrics, readyz
from portal.api.hub.root import hub_api
from portal.api.root import api
from portal.web.account.views.join import join

_account = [
    path("login", account.login, name="account_login"),
    path("logout", account.logout, name="account_logout"),
    path("join", join, name="account_signup"),
    path("inactive", account.account_inactive, name="account_inactive"),
    path("password/change", account.password_change, name="account_change_password"),
    path("password/reset", account.password_reset, name="account_reset_password"),
    path("password/reset/sent", account.password_reset_done, name="account_reset_password_done"),
    re_path(
        r"^password/reset/key/(?P<uidb36>[0-9A-Za-z_]+)-(?P<key>[^/]+)$",
        account.password_reset_from_key,
        name="account_reset_password_from_key",
    ),
    path(
        "password/reset/done",
        account.password_reset_from_key_done,
        name="account_reset_password_from_key_done",
    ),
]
# Only the routes of the OpenID provider that our own services need, not its management pages.
_oidc = [
    path("authorize/", oidc.AuthorizationView.as_view(), name="authorize"),
    path("token/", oidc.TokenView.as_view(), name="token"),
    path("revoke_token/", oidc.RevokeTokenView.as_view(), name="revoke-token"),
    path(
        ".well-known/openid-configuration",
        oidc.ConnectDiscoveryInfoView.as_view(),
        name="oidc-connect-discovery-info",
    ),
    path(".well-known/jwks.json", oidc.JwksInfoView.as_view(), name="jwks-info"),
    path("userinfo/", oidc.UserInfoView.as_view(), name="user-info"),
]

urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("metrics", metrics, name="metrics"),
    path("api/v1/", api.urls),
    path("api/agent/v1/", agent_api.urls),
    path("api/gateway/v1/", gateway_api.urls),
    path("api/hub/v1/", hub_api.urls),
    path("account/", include(_account)),
    path("o/", include((_oidc, "oauth2_provider"))),
    path("", include("portal.web.urls")),
]

handler404 = "portal.web.base.error_pages.not_found"
handler500 = "portal.web.base.error_pages.server_error"
