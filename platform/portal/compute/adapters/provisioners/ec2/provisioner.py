"""Makes instances of a launch template of Amazon EC2, and ends them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from portal.compute.adapters.provisioners.ec2.settings import Ec2Settings
from portal.compute.adapters.provisioners.ec2.user_data import user_data
from portal.compute.provisioners import (
    MachineOrder,
    MachinePhase,
    MachineReport,
    ProvisionerAway,
    ProvisionerRefused,
)

GROUP_TAG = "slipway:group"
MACHINE_TAG = "slipway:machine"
# Answers that say nothing about the order: the call is repeated.
_TRANSIENT = frozenset(
    {
        *("RequestLimitExceeded", "Throttling", "ThrottlingException", "RequestThrottled"),
        *("InternalError", "InternalFailure", "Unavailable", "ServiceUnavailable"),
        *("RequestExpired", "ExpiredToken", "AuthFailure", "UnauthorizedOperation"),
    }
)
_UNKNOWN = frozenset({"InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"})
_PHASES = {
    "pending": MachinePhase.STARTING,
    "running": MachinePhase.RUNNING,
    "shutting-down": MachinePhase.ENDING,
    "stopping": MachinePhase.ENDING,
    # It costs its disks, and is ended like one that runs.
    "stopped": MachinePhase.ENDING,
}


class Ec2Provisioner:
    """The instances of one group. They have its id as a tag."""

    def __init__(self, group: str, settings: Ec2Settings, *, url: str) -> None:
        """Agents reach the portal at `url`. Raises ProvisionerAway."""
        self._group = group
        self._settings = settings
        self._url = url
        with _answers():
            session = boto3.Session(
                profile_name=settings.profile or None, region_name=settings.region
            )
            self._client = session.client(
                "ec2",
                endpoint_url=settings.endpoint or None,
                config=Config(
                    connect_timeout=5, read_timeout=20, retries={"total_max_attempts": 2}
                ),
            )

    def make(self, order: MachineOrder) -> str:
        """Run an instance. Raises ProvisionerRefused, ProvisionerAway."""
        known = self.look().get(order.name)
        if known is not None:
            return known.handle
        with _answers(refuses=True):
            answer = self._client.run_instances(**self._request(order))
        return str(answer["Instances"][0]["InstanceId"])

    def look(self) -> Mapping[str, MachineReport]:
        """Report on the instances of the group that are not terminated. Raises ProvisionerAway."""
        filters = [
            {"Name": f"tag:{GROUP_TAG}", "Values": [self._group]},
            {"Name": "instance-state-name", "Values": sorted(_PHASES)},
        ]
        with _answers():
            pages = self._client.get_paginator("describe_instances").paginate(Filters=filters)
            instances = [
                instance
                for page in pages
                for reservation in page["Reservations"]
                for instance in reservation["Instances"]
            ]
        reports = map(_report, instances)
        return {report.name: report for report in reports}

    def release(self, handle: str) -> None:
        """Terminate an instance. Raises ProvisionerAway."""
        with _answers(ignores=_UNKNOWN):
            self._client.terminate_instances(InstanceIds=[handle])

    def output(self, handle: str) -> str:
        """Return the end of the serial console. Raises ProvisionerAway."""
        with _answers():
            return self._console(handle)

    def _console(self, handle: str) -> str:
        try:
            answer = self._client.get_console_output(InstanceId=handle, Latest=True)
        except ClientError as error:
            if _code(error) in _UNKNOWN:
                return ""
            if _code(error) != "UnsupportedOperation":
                raise
            # Instances that are not of the Nitro system have the output of the last boot alone.
            answer = self._client.get_console_output(InstanceId=handle)
        return str(answer.get("Output") or "")

    def _request(self, order: MachineOrder) -> dict[str, Any]:
        """Return the parameters of RunInstances. The same for the same order."""
        settings = self._settings
        is_id = settings.launch_template.startswith("lt-")
        tags = [
            {"Key": "Name", "Value": order.name},
            {"Key": GROUP_TAG, "Value": self._group},
            {"Key": MACHINE_TAG, "Value": order.name},
        ]
        request: dict[str, Any] = {
            "MinCount": 1,
            "MaxCount": 1,
            "ClientToken": order.name,
            "LaunchTemplate": {
                "LaunchTemplateId" if is_id else "LaunchTemplateName": settings.launch_template,
                "Version": settings.launch_template_version,
            },
            "UserData": user_data(order, settings, url=self._url),
            "TagSpecifications": [
                {"ResourceType": kind, "Tags": tags} for kind in ("instance", "volume")
            ],
            "InstanceInitiatedShutdownBehavior": "terminate",
            # Containers of tasks are one hop further than the machine itself.
            "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
        }
        if settings.spot:
            request["InstanceMarketOptions"] = {
                "MarketType": "spot",
                "SpotOptions": {
                    "SpotInstanceType": "one-time",
                    "InstanceInterruptionBehavior": "terminate",
                },
            }
        if settings.instance_type:
            request["InstanceType"] = settings.instance_type
        if settings.subnet:
            request["SubnetId"] = settings.subnet
        return request


def _report(instance: Mapping[str, Any]) -> MachineReport:
    tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])}
    state = instance["State"]["Name"]
    detail = str(instance.get("StateReason", {}).get("Message") or "")
    return MachineReport(
        name=tags.get(MACHINE_TAG) or instance["InstanceId"],
        handle=instance["InstanceId"],
        phase=_PHASES.get(state, MachinePhase.GONE),
        detail=detail or f"{state}, {instance.get('InstanceType', '')}",
    )


@contextmanager
def _answers(*, refuses: bool = False, ignores: frozenset[str] = frozenset()) -> Iterator[None]:
    """Turn errors of the client into those of the port. With `refuses` an order may be refused."""
    try:
        yield
    except ClientError as error:
        code = _code(error)
        if code in ignores:
            return
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        message = error.response.get("Error", {}).get("Message") or str(error)
        text = f"{message.rstrip('.')} ({code})."
        if refuses and code not in _TRANSIENT and status < 500:
            raise ProvisionerRefused(text) from error
        raise ProvisionerAway(text) from error
    except BotoCoreError as error:  # no credentials, no connection, no such profile
        raise ProvisionerAway(f"{error}") from error


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
