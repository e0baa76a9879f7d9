"""What the matrix asks about endpoints: one that serves on each side, with a key and a replica."""

from portal.accounts.models import Project, User
from portal.accounts.tokens import hash_of
from portal.compute.models import Tier
from portal.endpoints.models import Endpoint, EndpointKey, Replica, Revision
from portal.endpoints.ports import ServedModel, register_models
from portal.endpoints.tokens import key_prefix, new_key_secret
from portal.monitoring.models import Alert, AlertChannel
from slipway.schemas.endpoints import LimitsIn, RollbackRules
from tests.portal.endpoints.serving import Models
from tests.portal.workloads.machines import make_tier


def make_endpoint(*, owner: User, project: Project) -> dict[str, str]:
    """Make an endpoint that serves version 1 of digits, and has version 2 warm.

    The number of its warm revision is long enough to be told apart on a page.
    """
    register_models(Models())
    tier = Tier.objects.filter(slug="served").first() or make_tier("served")
    endpoint = Endpoint.objects.create(
        project=project,
        name=f"{owner.name}-digits".lower(),
        made_by=owner,
        tier=tier,
        state="serving",
        limits=LimitsIn().model_dump(),
        rules=RollbackRules().model_dump(),
    )
    warm = 61_000 + Endpoint.objects.count()
    revisions = [
        Revision.objects.create(
            endpoint=endpoint,
            number=number,
            made_by=owner,
            model="digits",
            model_version=version,
            served=ServedModel(model="digits", version=version, format="onnx").model_dump(),
            state=state,
            weight=weight,
        )
        for number, version, state, weight in (
            (1, "1", "serving", 100),
            (warm, "2", "standby", 0),
        )
    ]
    secret = new_key_secret()
    key = EndpointKey.objects.create(
        endpoint=endpoint,
        name=f"{owner.name} shop",
        sha256=hash_of(secret),
        prefix=key_prefix(secret),
        scopes=["predict"],
        made_by=owner,
    )
    replica = Replica.objects.create(endpoint=endpoint, revision=revisions[0], secret=b"sealed")
    alert = Alert.objects.create(endpoint=endpoint, kind="errors", reason="Many failed.")
    channel = AlertChannel.objects.create(
        endpoint=endpoint, kind="email", target=owner.email, made_by=owner
    )
    return {
        "endpoint": endpoint.name,
        "alert": alert.pk,
        "channel": channel.pk,
        "endpoint key": key.pk,
        "replica": replica.pk,
        "revision number": str(warm),
        "file number": "61235",
    }
