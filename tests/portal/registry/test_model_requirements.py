"""The environment that a model is served in, by the requirements that came with it."""

import pytest

from portal.accounts.models import Project
from portal.endpoints.adapters.registry_models import RegistryModels
from tests.personas import Api
from tests.portal.registry.store import FILES, Store

pytestmark = pytest.mark.django_db(databases=["default", "tracking"])
VERSIONS = "projects/vision/models/digits/versions"


def requirements_to_serve(bob: Api, store: Store, requirements: str) -> list[str]:
    """Register a model with these; returns the packages of an environment built for it, if any."""
    run_id = store.run(files={**FILES, "requirements.txt": requirements.encode()})
    answer = bob.post(VERSIONS, {"source": f"runs:/{run_id}/model"})
    assert answer.status_code == 201, answer.content
    served = RegistryModels().find(
        project_id=Project.objects.get(pk=store.project_id).pk, model="digits", version=None
    )
    return served.requirements.splitlines()


def test_a_model_of_xgboost_from_a_notebook_is_served_without_a_build(
    bob: Api, store: Store
) -> None:
    # As MLflow writes it: the package that is installed, and the usual one of the same version.
    assert requirements_to_serve(bob, store, "xgboost-cpu==3.2.0\nxgboost==3.2.0\n") == []


def test_one_of_two_packages_with_the_same_files_is_installed(bob: Api, store: Store) -> None:
    lines = requirements_to_serve(bob, store, "xgboost-cpu==3.1.0\nxgboost==3.1.0\nhumanize\n")
    assert "xgboost-cpu==3.1.0" in lines
    assert "xgboost==3.1.0" not in lines


def test_whoever_names_the_usual_package_gets_it(bob: Api, store: Store) -> None:
    assert "xgboost==3.2.0" in requirements_to_serve(bob, store, "xgboost==3.2.0\n")
