"""Django's settings, derived from the one typed table in `portal.config.env`."""

from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

from portal.config import keyfiles, keys
from portal.config.databases import database_from, tracking_database_from
from portal.config.env import ROOT, STATIC_FOLDER, env
from portal.config.hosts import dashboards_url, portal_hosts
from portal.config.logs import logging_from
from portal.config.relay import folder_of as relay_folder
from portal.config.tracking_server import artifacts_url, socket_of
from portal.web.docs.client import add_static_headers

ENV = env()
DATA_DIR = ENV.data_dir
KEYS_DIR = DATA_DIR / "keys"
_url = urlsplit(ENV.url)
_dashboards = urlsplit(dashboards_url(ENV))

DEBUG = ENV.debug
SECRET_KEY = keys.session_key(KEYS_DIR)
SLIPWAY_METRICS_TOKEN = keyfiles.metrics_token(KEYS_DIR)
SLIPWAY_SECRETS_KEY = keys.secrets_key(KEYS_DIR)
SLIPWAY_ROOT = ROOT
SLIPWAY_URL = ENV.url
SLIPWAY_GATEWAY_URL = ENV.gateway_url
SLIPWAY_NOTEBOOKS_URL = ENV.notebooks_url
SLIPWAY_NOTEBOOKS_SUBDOMAINS = ENV.notebooks_subdomains
# As servers on the Hub's own machine reach it.
SLIPWAY_NOTEBOOKS_HUB_API = f"http://127.0.0.1:{ENV.notebooks_hub_port}/hub/api"
SLIPWAY_DASHBOARDS_URL = _dashboards.geturl()
SLIPWAY_RELAY_PUBLIC_URL = ENV.relay_public_url
SLIPWAY_RELAY_PORT = ENV.relay_port
SLIPWAY_HAS_RELAY = ENV.embedded_relay
SLIPWAY_RELAY_FOLDER = partial(relay_folder, ENV)
# Packages that nodes install for tasks without an environment.
SLIPWAY_JOB_REQUIREMENTS = ROOT / "requirements" / "jobs.txt"
SLIPWAY_PACKAGE_INDEXES = ENV.package_indexes
SLIPWAY_IMAGE_REGISTRY = ENV.image_registry
SLIPWAY_VULNERABILITIES_URL = ENV.vulnerabilities_url
SLIPWAY_VULNERABILITIES_EXCEPT = ENV.vulnerabilities_except
SLIPWAY_CONDA_CHANNELS = ENV.conda_channels
SLIPWAY_REDIS_URL = ENV.redis
SLIPWAY_API_REQUESTS_PER_MINUTE = ENV.api_requests_per_minute
SLIPWAY_TRACKING_REQUESTS_PER_MINUTE = ENV.tracking_requests_per_minute
SLIPWAY_MAX_JSON_DEPTH = ENV.max_json_depth
SLIPWAY_TRUSTED_PROXIES = ENV.trusted_proxies

# Ports are compared as well, by `portal.config.host_check`, before Django sees a request.
ALLOWED_HOSTS = portal_hosts(ENV).host_names
CSRF_TRUSTED_ORIGINS = [f"{_url.scheme}://{_url.netloc}"]

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "django.forms",
    "allauth",
    "allauth.account",
    "allauth.usersessions",
    "oauth2_provider",
    "django_htmx",
    "csp",
    "ninja",
    "portal.core",
    "portal.accounts",
    "portal.storage",
    "portal.compute",
    "portal.workloads",
    "portal.experiments",
    "portal.registry",
    "portal.datasets",
    "portal.training",
    "portal.notebooks",
    "portal.endpoints",
    "portal.monitoring",
    "portal.spend",
    "portal.reports",
    "portal.sweeps",
    "portal.batch_predictions",
    "portal.pipelines",
    "portal.api",
    "portal.web",
    "portal.config",
]

MIDDLEWARE = [
    "portal.core.middleware.RequestContextMiddleware",
    "portal.api.middleware.ProblemMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "allauth.usersessions.middleware.UserSessionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "portal.accounts.middleware.PrincipalMiddleware",
    "portal.web.base.middleware.PageMiddleware",
    "portal.api.middleware.RateLimitMiddleware",
    "portal.api.middleware.IdempotencyMiddleware",
    "portal.config.policies.PolicyMiddleware",
]

ROOT_URLCONF = "portal.config.urls"
ASGI_APPLICATION = "portal.config.asgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "portal.web.base.engine.EncodableTemplates",
        "NAME": "django",
        # Our templates override those of the libraries.
        "DIRS": [ROOT / "platform/portal/web/templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "portal.web.base.context.shell",
            ],
            "builtins": ["portal.web.templatetags.slipway"],
        },
    }
]
FORM_RENDERER = "portal.web.base.form_renderer.Renderer"

DATABASES = {
    "default": database_from(ENV.database_url, DATA_DIR),
    "tracking": tracking_database_from(ENV.database_url, DATA_DIR),
}
DATABASE_ROUTERS = ["portal.experiments.models.tables.DatabaseRouter"]
CACHES = {
    # Sign-in throttling must survive a dead Redis and be shared by all portal processes.
    "default": {
        "BACKEND": "portal.core.cache.PatientCache",
        "LOCATION": "core_cache",
        "OPTIONS": {"MAX_ENTRIES": 100_000},
    }
}

# People
AUTH_USER_MODEL = "accounts.User"
AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.Argon2PasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}", "OPTIONS": options}
    for name, options in (
        ("UserAttributeSimilarityValidator", {"user_attributes": ("email", "name")}),
        ("MinimumLengthValidator", {"min_length": 10}),
        ("CommonPasswordValidator", {}),
        ("NumericPasswordValidator", {}),
    )
]
SESSION_ENGINE = "django.contrib.sessions.backends.db"
SESSION_COOKIE_AGE = ENV.session_days * 86_400
# With TLS no page of another host, such as notebooks in the same domain, can set a cookie of these
# names. They have no Domain, so browsers send them to this host alone.
_cookies = "__Host-slipway_" if _url.scheme == "https" else "slipway_"
SESSION_COOKIE_NAME = f"{_cookies}session"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _url.scheme == "https"
CSRF_COOKIE_NAME = f"{_cookies}csrf"
CSRF_COOKIE_HTTPONLY = True
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_USE_SESSIONS = False
CSRF_FAILURE_VIEW = "portal.web.base.error_pages.csrf_failed"
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "home"

ACCOUNT_ADAPTER = "portal.accounts.authentication.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*"]  # a password can be shown while it is typed
ACCOUNT_FORMS = {
    "login": "portal.web.account.forms.account.SignIn",
    "signup": "portal.web.account.forms.account.Join",
    "change_password": "portal.web.account.forms.account.ChangePassword",
    "reset_password": "portal.web.account.forms.account.ResetRequestForm",
    "reset_password_from_key": "portal.web.account.forms.account.NewPasswordForm",
}
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_EMAIL_VERIFICATION = "none"  # an invitation, bound to the address, is the proof
ACCOUNT_PREVENT_ENUMERATION = True
ACCOUNT_LOGOUT_ON_GET = False
ACCOUNT_LOGOUT_REDIRECT_URL = "account_login"
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_LOGIN_ON_PASSWORD_RESET = False
ACCOUNT_LOGOUT_ON_PASSWORD_CHANGE = True
ACCOUNT_EMAIL_SUBJECT_PREFIX = "Slipway: "
# By address, and by address and e-mail together; never by e-mail alone, which would let a stranger
# lock a person out.
ACCOUNT_RATE_LIMITS = {
    "login": "60/m/ip",
    "login_failed": f"60/m/ip,{ENV.login_failures_per_5_minutes}/300s/key",
    "signup": "20/m/ip",
    "reset_password": "20/m/ip",
    "reset_password_from_key": "20/m/ip",
    "change_password": "10/m/user",
    "reauthenticate": "10/m/user",
}
USERSESSIONS_TRACK_ACTIVITY = False
ALLAUTH_TRUSTED_PROXY_COUNT = ENV.trusted_proxies

OAUTH2_PROVIDER = {
    "OIDC_ENABLED": True,
    "OIDC_ISS_ENDPOINT": f"{ENV.url}/o",
    "OIDC_RSA_PRIVATE_KEY": keys.oidc_key(KEYS_DIR),
    "OAUTH2_VALIDATOR_CLASS": "portal.accounts.oidc.Validator",
    "PKCE_REQUIRED": True,
    "SCOPES": {"openid": "Who you are", "profile": "Your name", "email": "Your e-mail address"},
    "DEFAULT_SCOPES": ["openid"],
    "ALLOWED_REDIRECT_URI_SCHEMES": ["http", "https"],
    "ACCESS_TOKEN_EXPIRE_SECONDS": 600,
    "REFRESH_TOKEN_EXPIRE_SECONDS": 86_400,
    "ROTATE_REFRESH_TOKEN": True,
    # A token used twice was stolen: all tokens derived from it are revoked.
    "REFRESH_TOKEN_REUSE_PROTECTION": True,
    "OIDC_RESPONSE_TYPES_SUPPORTED": ["code"],
    "COMPLIANT_BCP_RFC9700_PKCE_METHOD": True,
    "COMPLIANT_BCP_RFC9700_ACCESS_TOKEN_TRANSPORT": True,
    "COMPLIANT_BCP_RFC9700_IMPLICIT_GRANT": True,
    "COMPLIANT_BCP_RFC9700_PASSWORD_GRANT": True,
}

# Edges
DATA_UPLOAD_MAX_MEMORY_SIZE = ENV.max_body_bytes
DATA_UPLOAD_MAX_NUMBER_FIELDS = 500
APPEND_SLASH = False
X_FRAME_OPTIONS = "DENY"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
SECURE_HSTS_SECONDS = 31_536_000 if _url.scheme == "https" else 0
if ENV.trusted_proxies:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "font-src": ["'self'"],
        "media-src": ["'self'"],
        "connect-src": ["'self'"],
        "manifest-src": ["'self'"],
        # Signing in on the way to a notebook redirects there, and opening a dashboard to its host.
        "form-action": [
            "'self'",
            *([ENV.notebooks_url] if ENV.notebooks_url else []),
            *([f"{_dashboards.scheme}://*.{_dashboards.netloc}"] if _dashboards.netloc else []),
        ],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
    }
}

# Static files: directly from the npm packages, with hashed names.
STATIC_URL = "/static/"
STATIC_ROOT = STATIC_FOLDER
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "portal.web.base.npm.NpmFinder",
]
STORAGES: dict[str, dict[str, Any]] = {
    "default": {"BACKEND": "django.core.files.storage.InMemoryStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}
WHITENOISE_MAX_AGE = 31_536_000
WHITENOISE_ADD_HEADERS_FUNCTION = add_static_headers

LANGUAGE_CODE = "en"
USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"

# Mail
DEFAULT_FROM_EMAIL = SERVER_EMAIL = ENV.email_from
SLIPWAY_HAS_MAIL = bool(ENV.email_url)
if ENV.email_url:
    _mail = urlsplit(ENV.email_url)
    EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    EMAIL_HOST = _mail.hostname or "localhost"
    EMAIL_PORT = _mail.port or (465 if _mail.scheme == "smtps" else 587)
    EMAIL_HOST_USER = unquote(_mail.username or "")
    EMAIL_HOST_PASSWORD = unquote(_mail.password or "")
    EMAIL_USE_SSL = _mail.scheme == "smtps"
    EMAIL_USE_TLS = _mail.scheme == "smtp" and bool(_mail.username)
    EMAIL_TIMEOUT = 10
else:
    EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
    EMAIL_FILE_PATH = DATA_DIR / "outbox"

# Bytes
SLIPWAY_WEBHOOK_HOSTS = frozenset(
    host.strip() for host in ENV.webhook_hosts.split(",") if host.strip()
)
SLIPWAY_STORAGE_URL = ENV.storage_url or (DATA_DIR / "blobs").as_uri()
SLIPWAY_STORAGE_OPTIONS = {
    "endpoint_url": ENV.s3_endpoint_url or None,
    "key": ENV.s3_access_key_id or None,
    "secret": ENV.s3_secret_access_key.get_secret_value() or None,
}
SLIPWAY_CHECKPOINT_COPY_MAX_BYTES = ENV.checkpoint_copy_max_mib * 1024**2
SLIPWAY_KEEP_FAILED_MAX_MINUTES = ENV.keep_failed_max_minutes

# Experiments
SLIPWAY_TRACKING_SOCKET = socket_of(DATA_DIR)
SLIPWAY_TRACKING_SECRET = keyfiles.tracking_secret(KEYS_DIR)
SLIPWAY_ARTIFACTS_URL = artifacts_url(ENV.storage_url, DATA_DIR)

LOGGING_CONFIG = None
logging_from(ENV.log_level, ENV.log_format)
