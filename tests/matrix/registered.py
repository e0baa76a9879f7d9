"""A registered model of each tenant, with a version, an alias and a request for its promotion."""

from datetime import timedelta

from portal.accounts.models import Project, User
from portal.core import clock
from portal.experiments.models import ModelVersion, RegisteredModel
from portal.registry.mlflow_sync import sync_pending
from portal.registry.models import VersionRecord
from portal.registry.promotion_gates import Target
from portal.registry.services.actors import Actor
from portal.registry.services.promotions import promote
from portal.registry.services.registration import register_version
from portal.registry.services.requests import request_approval
from slipway.schemas.registry import TargetKind, VersionIn
from tests.model_files import SOURCE, artifacts_folder, write_model


def make_model(*, project: Project, by: User) -> dict[str, str]:
    """Register a version; its number is long enough to be told apart on a page."""
    person = by.name.lower()
    model = f"model-of-{person}"
    key = {"workspace": project.pk, "name": model}
    RegisteredModel.objects.create(**key, creation_time=1_790_000_000_000)
    ModelVersion.objects.create(
        **key,
        version=720_000 + 10 * (RegisteredModel.objects.count() - 1),
        current_stage="Deleted_Internal",
    )
    write_model(artifacts_folder(), project.pk)
    made = register_version(
        project=project,
        model=model,
        spec=VersionIn(source=SOURCE),
        by=Actor(by),
    )
    alias = f"alias-of-{person}"
    for target in (Target(TargetKind.ALIAS, alias), Target(TargetKind.STAGE, "Staging")):
        promote(project=project, model=model, number=made.number, target=target, by=Actor(by))
    sync_pending()
    request = request_approval(
        project=project,
        model=model,
        number=made.number,
        target=Target(TargetKind.STAGE, "Production"),
        by=Actor(by),
    )
    # Its files are no model, so they would be read again, which must not be taken for a change.
    VersionRecord.objects.filter(line__name=model).update(read_at=clock.now() + timedelta(days=1))
    return {
        "model": model,
        "version": str(made.number),
        "alias": alias,
        "promotion request": request.pk,
    }
