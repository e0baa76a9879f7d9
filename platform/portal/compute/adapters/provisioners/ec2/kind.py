"""Registers Amazon EC2 as a provisioner. Its client is imported when a group is opened."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast

from portal.compute.adapters.provisioners.ec2.settings import Ec2Settings
from portal.compute.adapters.provisioners.setting_rules import clean_settings
from portal.compute.provisioners import Provisioner

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
        return clean_settings("ec2", Ec2Settings, settings)

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
