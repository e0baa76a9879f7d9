"""No page asks the database more because there is more to show."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from portal.accounts.models import Membership
from portal.accounts.services.invitations import invite
from portal.accounts.services.projects import create_project
from portal.accounts.services.secrets import write_secret
from portal.accounts.services.teams import create_team
from slipway.schemas.accounts import Role
from tests.personas import Personas, make_token, make_user
from tests.portal.web.conftest import Browse

PAGES = (
    "/",
    "/projects",
    "/p/vision",
    "/p/vision/members",
    "/p/vision/secrets",
    "/p/vision/audit",
    "/teams",
    "/t/crew",
    "/t/crew/members",
    "/settings/tokens",
    "/settings/audit",
    "/settings/people",
    "/palette?q=e",
    "/palette?project=vision",
)
# The palette has one for each kind of object.
MOST_QUERIES = 26


def _add(people: Personas, number: int) -> None:
    user = make_user(f"extra{number}")
    Membership.objects.create(user=user, project=people.vision, role=Role.VIEWER)
    team = create_team(by=people.root, name=f"Extra {number}")
    Membership.objects.create(user=user, team=team, role=Role.VIEWER)
    create_project(by=people.root, name=f"Extra {number}", team=team)
    write_secret(project=people.vision, by=user, name=f"KEY_{number}", value="v")
    make_token(people.root, name=f"extra {number}", project=people.vision)
    invite(
        group=people.vision,
        by=user,
        by_role=Role.OWNER,
        email=f"guest{number}@example.org",
        role=Role.VIEWER,
    )


@pytest.mark.parametrize("address", PAGES)
def test_a_page_asks_as_many_questions_for_thirty_rows_as_for_three(
    people: Personas, browse: Browse, address: str
) -> None:
    crew = create_team(by=people.root, name="Crew")
    people.vision.team = crew
    people.vision.save()
    root = browse(people.root)
    counts = []
    for batch in (range(3), range(3, 30)):
        for number in batch:
            _add(people, number)
        root.get(address)
        with CaptureQueriesContext(connection) as queries:
            assert root.get(address).status_code == 200
        counts.append(len(queries))
    assert counts[0] == counts[1]
    assert counts[1] <= MOST_QUERIES
