"""Every setting of Slipway: its type, default and meaning, read once from the environment.

Order: the process environment, then `.env` in the installation's folder, then the default here.
`manage.py settings --explain` prints this table with the values in force. A variable that starts
with SLIPWAY_ and is not listed here is an error that names the nearest real one.
"""

import difflib
import os
from functools import cache
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import (
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from portal.config.env_file import ENV_FILE_VARIABLE, SettingsError, env_file, read_dotenv
from portal.config.env_images import ImageSettings
from portal.config.keyfiles import redis_password
from slipway.schemas.hosts import authorities_of, parse_authority

ROOT = Path(__file__).resolve().parents[3]
STATIC_FOLDER = ROOT / ".staticfiles"
PREFIX = "SLIPWAY_"
# A different loopback address than the portal's, so that notebooks get no cookies of the portal.
NOTEBOOKS_HOST = "127.0.0.2"
# Variables of the SDK and the command line, which a person may have exported in the same shell.
CLIENT_VARIABLES = frozenset(
    {"SLIPWAY_URL", "SLIPWAY_TOKEN", "SLIPWAY_PROJECT", "SLIPWAY_CONFIG_DIR"}
)


class Env(ImageSettings):
    """The settings. SLIPWAY_DATA_DIR sets the field `data_dir`, and so on, except for aliases."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data_dir: Path = Field(
        default=ROOT / ".slipway",
        description="Folder for the embedded database, keys, logs and stored bytes.",
        examples=["./.slipway"],
    )
    bind: str = Field(
        default="127.0.0.1",
        description="Address that the public ports listen on. Anything but loopback needs an "
        "administrator and SLIPWAY_ALLOWED_HOSTS.",
        examples=["127.0.0.1"],
    )
    gateway_public_url: str = Field(
        default="",
        description="Address at which clients reach the gateway; empty means "
        "http://localhost:<gateway port>.",
        examples=["https://predict.example.org"],
    )
    public_url: str = Field(
        default="",
        description="Address of the portal for users, used in all links; empty means "
        "http://localhost:<portal port>.",
        examples=["https://slipway.example.org"],
    )
    internal_url: str = Field(
        default="",
        description="Address at which gateways and the Hub of this installation reach the portal, "
        "where that is another machine or container; empty means this one.",
        examples=["http://portal.internal:8000"],
    )
    notebooks_public_url: str = Field(
        default="",
        description="Address at which browsers reach notebooks. Its host must not be the portal's: "
        "cookies know no ports. Empty means http://127.0.0.2:<notebooks port> while "
        "SLIPWAY_BIND is loopback, else no notebooks.",
        examples=["https://notebooks.example.org"],
    )
    notebooks_subdomains: bool = Field(
        default=False,
        description="Whether each person's notebooks get a subdomain; needs a wildcard in DNS and "
        "in the certificate.",
        examples=["true"],
    )
    dashboards_public_url: str = Field(
        default="",
        description="Address below which each opened dashboard of a Ray cluster gets a subdomain, "
        "which the portal serves; needs a wildcard in DNS and in the certificate. Empty means "
        "http://localhost:<portal port> while that is the portal's address, else no dashboards.",
        examples=["https://dashboards.example.org"],
    )
    relay_public_url: str = Field(
        default="",
        description="Address at which agents in pools reach the relay, whose path is /relay; empty "
        "means the port of the relay at their address of the portal, or the path /relay of the "
        "portal if that is https.",
        examples=["https://slipway.example.org"],
    )
    allowed_hosts: str = Field(
        default="",
        description="More host names that the portal and the gateway accept, separated by commas: "
        "host:port, or host for the port of the process and of its public address; .example.org "
        "matches every name in that domain.",
        examples=["slipway.example.org"],
    )
    trusted_proxies: int = Field(
        default=0,
        ge=0,
        le=5,
        description="Number of reverse proxies in front whose X-Forwarded-* headers are trusted.",
        examples=["1"],
    )
    database_url: str = Field(
        default="",
        validation_alias="DATABASE_URL",
        description="PostgreSQL to use; empty means SQLite in the data folder.",
        examples=["postgresql://slipway:secret@db.example.org:5432/slipway"],
    )
    redis_url: str = Field(
        default="",
        validation_alias="REDIS_URL",
        description="Redis to use; empty means the embedded one.",
        examples=["redis://:secret@redis.example.org:6379/0"],
    )
    storage_url: str = Field(
        default="",
        description="Where files are stored: file:///folder or s3://bucket/prefix; empty means "
        "the data folder.",
        examples=["s3://slipway-bytes/prod"],
    )
    s3_endpoint_url: str = Field(
        default="",
        description="Endpoint of an S3-compatible server; empty means Amazon's.",
        examples=["https://s3.example.org"],
    )
    s3_access_key_id: str = Field(
        default="", description="Access key of the bucket.", examples=["slipway"]
    )
    s3_secret_access_key: SecretStr = Field(
        default=SecretStr(""), description="Secret key of the bucket.", examples=["…"]
    )
    backup_passphrase: SecretStr = Field(
        default=SecretStr(""),
        description="Passphrase of backups for use without a prompt; --passphrase-file takes "
        "precedence.",
        examples=["…"],
    )
    email_url: str = Field(
        default="",
        description="Mail server: smtp://user:password@host:587 (smtps:// for TLS from the "
        "start); empty writes mails to the data folder's outbox.",
        examples=["smtp://user:password@mail.example.org:587"],
    )
    email_from: str = Field(
        default="slipway@localhost",
        description="Sender of the mails.",
        examples=["slipway@example.org"],
    )
    webhook_hosts: str = Field(
        default="",
        description="Hosts inside your network that alerts may be sent to, as host:port separated "
        "by commas; all others must be public and use https.",
        examples=["chat.internal:443"],
    )
    process: Literal["portal", "control", "tracking", "gateway", "notebooks", "relay"] = Field(
        default="portal",
        description="Process that `manage.py run` starts, when each has its own container.",
        examples=["gateway"],
    )
    embedded_node: bool = Field(
        default=True,
        description="Whether this machine runs jobs itself, as the node that `manage.py up` "
        "starts.",
        examples=["true"],
    )
    embedded_gateway: bool = Field(
        default=True,
        description="Whether `manage.py up` runs the gateway, which serves predictions, on this "
        "machine.",
        examples=["true"],
    )
    embedded_tracking: bool = Field(
        default=True,
        description="Whether `manage.py up` runs MLflow's server on this machine; metrics are "
        "accepted without it, models and artifacts are not.",
        examples=["true"],
    )
    embedded_notebooks: bool = Field(
        default=True,
        description="Whether `manage.py up` runs JupyterHub and its proxy on this machine.",
        examples=["true"],
    )
    embedded_relay: bool = Field(
        default=True,
        description="Whether this installation runs the relay, through which notebooks in pools "
        "are reached.",
        examples=["true"],
    )
    job_python: str = Field(
        default="",
        description="Python for jobs without requirements and models without an environment of "
        "their own, on the embedded node; empty builds it from requirements/jobs.txt.",
        examples=["/opt/ml/bin/python"],
    )
    package_indexes: str = Field(
        default="",
        pattern=r"^(https?://[^\s@]+(\s+|$))*$",
        description="Package indexes that requirements may name, besides those of pip on nodes.",
        examples=["https://packages.example.org/wheels"],
    )
    vulnerabilities_url: str = Field(
        default="https://api.osv.dev",
        pattern=r"^(off|https?://[^\s@?#]+)$",
        description="Database that the control worker asks about known vulnerabilities of packages "
        "in named environments, with the API of OSV; off sends nothing.",
        examples=["off"],
    )
    vulnerabilities_except: str = Field(
        default="",
        pattern=r"^[A-Za-z0-9._*?\s-]*$",
        description="Names of private packages, or patterns of them, that are not asked about.",
        examples=["acme-* internal-tools"],
    )
    conda_channels: str = Field(
        default="conda-forge",
        pattern=r"^((([A-Za-z0-9_][A-Za-z0-9_./-]*=)?https?://[^\s@=]+|[A-Za-z0-9_][A-Za-z0-9_./-]*)"
        r"(\s+|$))*$",
        description="Channels that conda environments may name: names, addresses, or NAME=ADDRESS "
        "for a mirror.",
        examples=["conda-forge=https://packages.example.org/conda-forge bioconda"],
    )
    session_days: int = Field(
        default=14, ge=1, le=90, description="Days a sign-in lasts.", examples=["14"]
    )
    login_failures_per_5_minutes: int = Field(
        default=10,
        ge=1,
        description="Failed sign-ins from one address for one e-mail before a waiting time.",
        examples=["10"],
    )
    api_requests_per_minute: int = Field(
        default=1200,
        ge=1,
        description="API requests a minute for one token or session.",
        examples=["1200"],
    )
    tracking_requests_per_minute: int = Field(
        default=60_000,
        ge=1,
        description="Requests of MLflow clients a minute for one token; all ranks of a job share "
        "one.",
        examples=["60000"],
    )
    max_body_bytes: int = Field(
        default=1024 * 1024,
        ge=1024,
        description="Largest body of an API request or form, in bytes (uploads have their own "
        "limits).",
        examples=["1048576"],
    )
    max_json_depth: int = Field(
        default=32, ge=4, le=200, description="Deepest nesting of a JSON body.", examples=["32"]
    )
    head_timeout_s: float = Field(
        default=10,
        ge=0.1,
        le=600,
        description="Seconds within which the head of a request must reach the portal.",
        examples=["10"],
    )
    body_timeout_s: float = Field(
        default=30,
        ge=0.1,
        le=600,
        description="Seconds for which the portal waits for more of a request's body; it must "
        "bring 4 KiB a second on average.",
        examples=["30"],
    )
    connections_per_address: int = Field(
        default=1000,
        ge=1,
        description="Connections to the portal from one address. Not counted behind "
        "SLIPWAY_TRUSTED_PROXIES, which share one.",
        examples=["1000"],
    )
    checkpoint_copy_max_mib: int = Field(
        default=16 * 1024,
        ge=0,
        le=60 * 1024,
        description="Largest checkpoint that is copied from a node to the store, in MiB, so that "
        "the job can continue on another node; 0 copies none.",
        examples=["16384"],
    )
    keep_failed_max_minutes: int = Field(
        default=60,
        ge=0,
        le=1440,
        description="Longest time for which people may keep the failed task of a job, to open a "
        "shell in it; 0 keeps none.",
        examples=["60"],
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level that is logged.", examples=["info"]
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="Format of the log lines.", examples=["json"]
    )
    debug: bool = Field(
        default=False,
        description="Show Django's error pages. Never on a machine others can reach.",
        examples=["false"],
    )

    @field_validator("data_dir")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return (ROOT / value.expanduser()).resolve()

    @field_validator("internal_url", "gateway_public_url", "relay_public_url")
    @classmethod
    def _check_url(cls, value: str) -> str:
        if value:
            try:
                authorities_of(value)
            except ValueError:
                raise ValueError("must be http:// or https:// and a host") from None
        return value.rstrip("/")

    @field_validator("public_url")
    @classmethod
    def _without_path(cls, value: str) -> str:
        value = cls._check_url(value)
        parts = urlsplit(value)
        if parts.path or parts.query or parts.fragment:
            raise ValueError("must be http:// or https:// and a host, without a path")
        return value

    @field_validator("allowed_hosts")
    @classmethod
    def _check_hosts(cls, value: str, info: ValidationInfo) -> str:
        notebooks = urlsplit(info.data.get("notebooks_public_url") or "").hostname or ""
        for entry in filter(None, (part.strip() for part in value.split(","))):
            try:
                host, _ = parse_authority(entry.removeprefix("."))
            except ValueError:
                raise ValueError(f"has {entry!r}, which is not a host or host:port") from None
            is_domain = entry.startswith(".") and notebooks.endswith(f".{host}")
            if notebooks and (host == notebooks or is_domain):
                raise ValueError(f"must not have the notebooks' host {notebooks}")
        return value

    @field_validator("notebooks_public_url", "dashboards_public_url")
    @classmethod
    def _another_host(cls, value: str, info: ValidationInfo) -> str:
        if not value:
            return value
        value = cls._without_path(value)
        host = urlsplit(value).hostname
        portal = urlsplit(info.data.get("public_url") or "http://localhost").hostname or ""
        if host == portal or portal.endswith(f".{host}"):
            raise ValueError(f"must not have the portal's host {portal}: cookies know no ports")
        return value

    @field_validator("job_python")
    @classmethod
    def _is_a_path(cls, value: str) -> str:
        if value and not value.startswith("/"):
            raise ValueError("must be the whole path of a Python interpreter")
        return value

    @field_validator("database_url")
    @classmethod
    def _check_database_url(cls, value: str) -> str:
        if value and not value.startswith(("postgresql://", "postgres://", "sqlite:///")):
            raise ValueError("must start with postgresql:// (or be empty for SQLite)")
        return value

    @field_validator("redis_url")
    @classmethod
    def _check_redis_url(cls, value: str) -> str:
        if value and not value.startswith(("redis://", "rediss://", "unix://")):
            raise ValueError("must start with redis://, rediss:// or unix://")
        return value

    @field_validator("storage_url")
    @classmethod
    def _check_storage_url(cls, value: str) -> str:
        if value and not value.startswith(("file:///", "s3://")):
            raise ValueError("must start with file:/// or s3://")
        return value

    @field_validator("email_url")
    @classmethod
    def _check_mail_url(cls, value: str) -> str:
        if value and not value.startswith(("smtp://", "smtps://")):
            raise ValueError("must start with smtp:// or smtps://")
        return value

    @property
    def url(self) -> str:
        """The portal's address for browsers, without a trailing slash."""
        return (self.public_url or f"http://localhost:{self.portal_port}").rstrip("/")

    @property
    def gateway_url(self) -> str:
        """The gateway's address for clients, without a trailing slash."""
        return (self.gateway_public_url or f"http://localhost:{self.gateway_port}").rstrip("/")

    @property
    def notebooks_url(self) -> str:
        """The notebooks' address for browsers, without a trailing slash, or "" if there is none."""
        if self.notebooks_public_url:
            return self.notebooks_public_url.rstrip("/")
        return f"http://{NOTEBOOKS_HOST}:{self.notebooks_port}" if self.is_loopback_only else ""

    @property
    def extra_hosts(self) -> list[str]:
        """The names of SLIPWAY_ALLOWED_HOSTS."""
        return [part.strip() for part in self.allowed_hosts.split(",") if part.strip()]

    @property
    def runs_notebooks(self) -> bool:
        """True if `manage.py up` runs the Hub: it is enabled and has an address."""
        return self.embedded_notebooks and self.notebooks_url != ""

    @property
    def redis(self) -> str:
        """The configured Redis URL, with its password."""
        if self.redis_url:
            return self.redis_url
        return f"redis://:{redis_password(self.keys_dir)}@127.0.0.1:{self.redis_port}/0"

    @property
    def keys_dir(self) -> Path:
        """Folder of the keys that must not be in the database."""
        return self.data_dir / "keys"

    @property
    def is_loopback_only(self) -> bool:
        """True if the portal listens on the loopback interface alone."""
        return self.bind in ("127.0.0.1", "::1", "localhost")


def variable_of(field: str) -> str:
    """Return the environment variable that sets a field of Env."""
    alias = Env.model_fields[field].validation_alias
    return alias if isinstance(alias, str) else PREFIX + field.upper()


def _unknown_variables(names: set[str]) -> list[str]:
    known = {variable_of(field) for field in Env.model_fields}
    faults = []
    for name in sorted(names - known - CLIENT_VARIABLES - {ENV_FILE_VARIABLE}):
        if not name.startswith(PREFIX):
            continue
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
        faults.append(f"{name} is not a setting of Slipway; did you mean {near[0]}?")
    return faults


def _input_name(variable: str) -> str:
    """Return the name under which Env accepts a variable: its alias, or its field."""
    field = variable.removeprefix(PREFIX).lower()
    return field if variable.startswith(PREFIX) else variable


def _sentence(location: tuple[int | str, ...], message: str) -> str:
    variable = next(
        name for name in map(variable_of, Env.model_fields) if _input_name(name) == location[0]
    )
    field = next(field for field in Env.model_fields if variable_of(field) == variable)
    example = (Env.model_fields[field].examples or [""])[0]
    what = message.removeprefix("Value error, ").replace("Input should", "should")
    return f"{variable} {what}; for example {variable}={example}"


def read_env(environ: dict[str, str] | None = None, dotenv: Path | None = None) -> Env:
    """Read the settings. Raise SettingsError with one line for each fault."""
    process = dict(os.environ if environ is None else environ)
    file = env_file(process, ROOT) if dotenv is None else dotenv
    merged = read_dotenv(file) | process
    faults = _unknown_variables(set(merged))
    given = {name: merged[name] for name in map(variable_of, Env.model_fields) if merged.get(name)}
    try:
        env = Env.model_validate({_input_name(name): value for name, value in given.items()})
    except ValidationError as error:
        faults += [_sentence(fault["loc"], fault["msg"]) for fault in error.errors()]
    if faults:
        raise SettingsError("\n".join(faults))
    return env


@cache
def env() -> Env:
    """Return the settings of this process."""
    return read_env()
