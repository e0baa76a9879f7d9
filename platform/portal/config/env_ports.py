"""Settings of the ports, which `portal.config.env.Env` contains."""

from pydantic import BaseModel, Field


class PortSettings(BaseModel):
    """A port for each process that listens. Defaults are next to each other."""

    portal_port: int = Field(
        default=8000, ge=1, le=65535, description="Port of the portal.", examples=["8000"]
    )
    gateway_port: int = Field(
        default=8002,
        ge=1,
        le=65535,
        description="Port of the gateway, which serves predictions.",
        examples=["8002"],
    )
    notebooks_port: int = Field(
        default=8001,
        ge=1,
        le=65535,
        description="Port of notebooks, a separate origin.",
        examples=["8001"],
    )
    notebooks_hub_port: int = Field(
        default=8005,
        ge=1,
        le=65535,
        description="Loopback port of JupyterHub, behind the notebooks' proxy.",
        examples=["8005"],
    )
    notebooks_proxy_port: int = Field(
        default=8006,
        ge=1,
        le=65535,
        description="Loopback port of the notebooks proxy's routing API.",
        examples=["8006"],
    )
    control_health_port: int = Field(
        default=8003,
        ge=1,
        le=65535,
        description="Loopback port of the control worker's health and metrics.",
        examples=["8003"],
    )
    redis_port: int = Field(
        default=8004,
        ge=1,
        le=65535,
        description="Loopback port of the embedded Redis.",
        examples=["8004"],
    )
    relay_port: int = Field(
        default=8007,
        ge=1,
        le=65535,
        description="Port of the relay, to which agents in pools connect.",
        examples=["8007"],
    )
