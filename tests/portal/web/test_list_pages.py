"""The list pages: filters, sort and empty lists work in the same way on each of them."""

import pytest

from portal.accounts.models import ApiToken
from portal.accounts.services.projects import archive_project
from portal.accounts.services.tokens import revoke_token
from tests.personas import Personas, make_token
from tests.portal.web.conftest import Browse
from tests.portal.web.reading import html_of


@pytest.mark.parametrize(
    "address", ["/p/vision/secrets", "/p/vision/members", "/settings/tokens", "/teams"]
)
def test_a_filter_keeps_the_sort_order(people: Personas, browse: Browse, address: str) -> None:
    page = html_of(browse(people.alice).get(f"{address}?sort=-name&q=a"))
    assert '<input type="hidden" name="sort" value="-name">' in page


def test_a_list_of_archived_projects_alone_can_be_reached(people: Personas, browse: Browse) -> None:
    archive_project(project=people.vision)
    page = html_of(browse(people.alice).get("/projects"))
    assert "No projects yet" in page
    assert '<option value="archived">' in page


def test_a_list_of_revoked_tokens_alone_can_be_reached(people: Personas, browse: Browse) -> None:
    make_token(people.alice)
    revoke_token(by=people.alice, token_id=ApiToken.objects.get().pk)
    page = html_of(browse(people.alice).get("/settings/tokens"))
    assert "No active tokens" in page
    assert '<option value="all">' in page
