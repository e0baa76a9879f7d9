"""Settings of the registry for images of projects, which `portal.config.env.Env` contains."""

from pydantic import Field, field_validator

from portal.config.env_ports import PortSettings


class ImageSettings(PortSettings):
    """Settings of the registry that images of Dockerfiles are pushed to, for jobs in pools."""

    image_registry: str = Field(
        default="",
        pattern=r"^([a-z0-9][a-z0-9.-]*(:\d{1,5})?(/[a-z0-9][a-z0-9._-]*)+)?$",
        description="Registry and folder that images of projects' Dockerfiles are pushed to, for "
        "jobs in pools; empty: such jobs use no Dockerfile.",
        examples=["registry.example.org/slipway"],
    )
    image_registry_auth: str = Field(
        default="",
        description="File like Docker's config.json with the account that the embedded node pushes "
        "images with.",
        examples=["/etc/slipway/registry.json"],
    )

    @field_validator("image_registry_auth")
    @classmethod
    def _is_a_file(cls, value: str) -> str:
        if value and not value.startswith("/"):
            raise ValueError("must be the whole path of a file")
        return value
