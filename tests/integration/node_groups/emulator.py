"""An emulator of Amazon EC2 on loopback: moto."""

import os
import sys
from collections.abc import Iterator
from typing import Any

import boto3
import httpx
import pytest

from tests.ports import free_ports
from tests.processes import Program, wait_for

REGION, TEMPLATE = "eu-central-1", "slipway-gpu"
KEYS: dict[str, Any] = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the emulator."""
    port = free_ports(1)[0]
    output = tmp_path_factory.mktemp("moto") / "moto.log"
    argv = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    program = Program(argv, env=dict(os.environ), output=output)
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: _answers(address), "answer of the emulator", within_s=120)
        yield address
    finally:
        program.end()


def _answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/moto-api/", timeout=5).is_success
    except httpx.TransportError:
        return False


def prepare_account(address: str) -> Any:
    """Empty the account, create the launch template, and return a client."""
    httpx.post(f"{address}/moto-api/reset", timeout=30).raise_for_status()
    client = boto3.client(
        "ec2",
        region_name=REGION,
        endpoint_url=address,
        aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
    )
    image = client.describe_images()["Images"][0]["ImageId"]
    client.create_launch_template(
        LaunchTemplateName=TEMPLATE,
        LaunchTemplateData={"ImageId": image, "InstanceType": "g4dn.xlarge"},
    )
    return client
