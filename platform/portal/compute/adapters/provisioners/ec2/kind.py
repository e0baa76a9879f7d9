"""Registers Amazon EC2 as a provisioner. Its client is imported when a group is opened."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast

from pydantic import ValidationError

from portal.compute.adapters.provisioners.ec2.settings import Ec2Settings
from portal.compute.provisioners import Provisioner
from portal.core.errors import InvalidInput

_PROVISIONER = "portal.compute.adapters.provisioners.ec2.provisioner"


class Ec2ProvisionerKind:
    """Groups of instances of a launch template."""

    label = "Amazon EC2"

    def __init__(self, url: str) -> None:
        """Agents reach the portal at `url`, unless the group says otherwise."""
        self._url = url
        self._open: dict[str, tuple[Mapping[str, Any], Provisioner]] = {}

    def clean(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return checked settings. Raises InvalidInput."""
        try:
            return Ec2Settings.model_validate(dict(settings)).model_dump(exclude_defaults=True)
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(part) for part in first["loc"]) or "settings"
            if first["type"] == "extra_forbidden":
                message = f"The provisioner ec2 has no setting {name}."
            elif first["type"] == "missing":
                message = f"The setting {name} is required."
            else:
                reason = first["msg"].removeprefix("Value error, ")
                message = f"The setting {name} is not valid: {reason}."
            raise InvalidInput(
                message,
                field="settings",
                next_step=f"Settings: {', '.join(Ec2Settings.model_fields)}.",
            ) from error

    def open(self, group: str, settings: Mapping[str, Any]) -> Provisioner:
        """Return the provisioner of a group. Its client stays open for as long as its settings."""
        known = self._open.get(group)
        if known is None or known[0] != settings:
            checked = Ec2Settings.model_validate(dict(settings))
            # Only the control worker opens groups, so only it loads the client.
            module = import_module(_PROVISIONER)
            opened = module.Ec2Provisioner(group, checked, url=checked.portal_url or self._url)
            known = self._open[group] = (dict(settings), cast("Provisioner", opened))
        return known[1]
