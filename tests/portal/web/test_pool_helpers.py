"""The helper of a person in a Slurm pool, on the pages of one's own account."""

from portal.compute.models import PoolAccount
from portal.compute.services.pool_helpers import take_request
from portal.compute.services.pools import create_pool
from portal.core.clock import now
from tests.personas import Personas
from tests.portal.web.conftest import Browse
from tests.portal.web.reading import html_of, text_of


def test_a_pool_of_helpers_shows_the_command_and_whether_the_helper_runs(
    people: Personas, browse: Browse
) -> None:
    pool = create_pool(name="login", engine="slurm", settings={"helper": True})
    bob = browse(people.bob)
    assert "Slurm not linked helper not running never" in text_of(bob.get("/settings/profile"))
    address = "/settings/pools/login/account"
    page = bob.get(address)
    assert "slipway pool helper login" in text_of(page)
    assert "Get the command" not in text_of(page)
    assert "sbatch" not in html_of(bob.post(address, follow=True))
    PoolAccount.objects.update(code="", unix_name="bob7", linked_at=now())
    assert "Account bob7" in text_of(bob.get(address))
    assert "Helper not running" in text_of(bob.get(address))
    take_request(pool=pool, user=people.bob, helper="a" * 24)
    assert "Helper running" in text_of(bob.get(address))
    assert "bob7 helper running" in text_of(bob.get("/settings/profile"))
