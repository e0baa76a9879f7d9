"""Project pages: create, find, edit, archive, restore."""

from portal.accounts.models import Membership, Project
from portal.accounts.services.projects import create_project
from portal.accounts.services.teams import create_team
from slipway.schemas.accounts import Role
from tests.personas import Personas, make_user
from tests.portal.web.conftest import Browse
from tests.portal.web.reading import fault_of, form_of, html_of, text_of


def test_commands_with_quotes_are_whole_in_the_labels_of_their_buttons(
    people: Personas, browse: Browse
) -> None:
    page = html_of(browse(people.alice).get("/projects/new"))
    assert 'aria-label="Copy: slipway project create &quot;Churn model&quot;' in page


def test_a_project_is_created_from_its_form(people: Personas, browse: Browse) -> None:
    bob = browse(people.bob)
    answer = bob.post("/projects/new", {"name": "Churn model", "description": "Who leaves?"})
    assert answer.headers["Location"] == "/p/churn-model"
    page = text_of(bob.get("/p/churn-model"))
    assert "Churn model" in page
    assert "Who leaves?" in page
    assert "Churn model is ready" in page


def test_a_refused_form_keeps_what_was_typed_and_says_why_beside_the_field(
    people: Personas, browse: Browse
) -> None:
    typed = {"name": "Second", "slug": "vision", "description": "kept words"}
    answer = browse(people.alice).post("/projects/new", typed)
    assert answer.status_code == 422
    assert "already use the address vision" in fault_of(answer, "slug")
    assert "Choose another address" in fault_of(answer, "slug")
    assert 'value="Second"' in html_of(answer)
    assert "kept words" in html_of(answer)


def test_a_bad_name_is_refused_beside_the_name(people: Personas, browse: Browse) -> None:
    answer = browse(people.alice).post("/projects/new", {"name": "a\u202eb"})
    assert "U+202E" in fault_of(answer, "name")


def test_a_project_is_made_in_a_team_one_maintains(people: Personas, browse: Browse) -> None:
    crew = create_team(by=people.alice, name="Crew")
    Membership.objects.create(user=people.vera, team=crew, role=Role.VIEWER)
    page = browse(people.alice).get("/projects/new?team=crew")
    assert form_of(page).initial["team"] == "crew"
    browse(people.alice).post("/projects/new", {"name": "Ours", "team": "crew"})
    assert Project.objects.get(slug="ours").team == crew
    refused = browse(people.vera).post("/projects/new", {"name": "Mine", "team": "crew"})
    assert fault_of(refused, "team")


def test_the_list_is_filtered_sorted_and_paged(people: Personas, browse: Browse) -> None:
    for number in range(60):
        create_project(by=people.alice, name=f"Batch {number:02}")
    alice = browse(people.alice)
    first = alice.get("/projects?sort=name&q=Batch")
    assert "Batch 00" in text_of(first)
    assert "Batch 50" not in text_of(first)
    cursor = first.context["listing"].page.next_cursor
    second = text_of(alice.get(f"/projects?sort=name&q=Batch&cursor={cursor}"))
    assert "Batch 51" in second
    assert "Batch 49" not in second
    downwards = alice.get("/projects?sort=-name&q=Batch").context["rows"]
    assert downwards[0][0].name == "Batch 59"
    assert "No matches" in text_of(alice.get("/projects?q=zzz"))


def test_an_empty_list_offers_the_one_action_that_fills_it(
    people: Personas, browse: Browse
) -> None:
    page = html_of(browse(make_user("newcomer")).get("/projects"))
    assert "No projects yet" in page
    assert "Create a project" in page
    assert "slipway project list" in page


def test_archiving_names_what_goes_and_wants_the_address_typed(
    people: Personas, browse: Browse
) -> None:
    alice = browse(people.alice)
    question = text_of(alice.get("/p/vision/archive"))
    assert "3 people lose access" in question
    assert "limited to it" not in question
    assert "open invitation" not in question
    assert "Nothing is deleted" in question
    wrong = alice.post("/p/vision/archive", {"confirm": "visoin"})
    assert "This is not vision" in fault_of(wrong, "confirm")
    alice.post("/p/vision/archive", {"confirm": "vision"})
    assert browse(people.bob).get("/p/vision").status_code == 404
    assert "was archived" in text_of(alice.get("/p/vision"))
    assert "Vision" in text_of(alice.get("/projects?state=archived"))
    alice.post("/p/vision/restore")
    assert browse(people.bob).get("/p/vision").status_code == 200


def test_the_overview_offers_what_one_may_start(people: Personas, browse: Browse) -> None:
    offered = html_of(browse(people.bob).get("/p/vision"))
    assert 'href="/p/vision/jobs/new"' in offered
    assert 'href="/p/vision/notebooks/new"' in offered
    Membership.objects.filter(user=people.bob).update(role=Role.VIEWER)
    assert 'href="/p/vision/jobs/new"' not in html_of(browse(people.bob).get("/p/vision"))


def test_home_offers_to_start_only_where_one_may(people: Personas, browse: Browse) -> None:
    bob = browse(people.bob)
    assert 'href="/p/vision/jobs/new"' in html_of(bob.get("/"))
    Membership.objects.filter(user=people.bob).update(role=Role.VIEWER)
    seen = html_of(bob.get("/"))
    assert "/jobs/new" not in seen
    assert "/new-endpoint" not in seen


def test_a_project_is_renamed_by_a_maintainer(people: Personas, browse: Browse) -> None:
    mia = browse(people.mia)
    mia.post("/p/vision/settings", {"name": "Eyesight", "description": "new"})
    assert "Eyesight" in text_of(mia.get("/p/vision"))
    assert "Archive this project" not in text_of(mia.get("/p/vision/settings"))


def test_the_overview_shows_a_person_once_with_the_higher_role(
    people: Personas, browse: Browse
) -> None:
    crew = create_team(by=people.alice, name="Crew")
    Membership.objects.create(user=people.bob, team=crew, role=Role.VIEWER)
    project = create_project(by=people.alice, name="Ours", team=crew)
    Membership.objects.create(user=people.bob, project=project, role=Role.CONTRIBUTOR)
    page = browse(people.alice).get("/p/ours")
    shown = [(member.user.email, member.role) for member in page.context["members"]]
    assert shown == [(people.alice.email, Role.OWNER), (people.bob.email, Role.CONTRIBUTOR)]


def test_owners_choose_the_network_rule_and_others_read_it(
    people: Personas, browse: Browse
) -> None:
    alice = browse(people.alice)
    assert "Network access of tasks" in text_of(alice.get("/p/vision/settings"))
    page = alice.post("/p/vision/network", {"network": "platform"}, follow=True)
    assert "It applies to work that starts from now on." in text_of(page)
    assert Project.objects.get(slug="vision").network == "platform"
    assert alice.post("/p/vision/network", {"network": "none"}).status_code == 422
    mia = browse(people.mia)
    settings = text_of(mia.get("/p/vision/settings"))
    assert "platform network access of its tasks; set by owners" in settings
    assert "Save rule" not in settings
    assert mia.post("/p/vision/network", {"network": "open"}).status_code == 403
    assert "tasks can reach only Slipway" in text_of(mia.get("/p/vision"))
    assert Project.objects.get(slug="vision").network == "platform"


def test_the_readme_is_written_previewed_and_shown_as_safe_markdown(
    people: Personas, browse: Browse
) -> None:
    bob = browse(people.bob)
    assert "Write a README" in text_of(bob.get("/p/vision"))
    assert "README" not in text_of(browse(people.vera).get("/p/vision"))
    typed = {
        "text": "# Eyes\n\n**bold** <script>alert(1)</script> [x](javascript:alert(1))",
        "version": "0",
    }
    preview = bob.post("/p/vision/readme", typed | {"preview": "1"})
    assert "<strong>bold</strong>" in html_of(preview)
    assert "Write a README" in text_of(bob.get("/p/vision"))
    assert bob.post("/p/vision/readme", typed).headers["Location"] == "/p/vision"
    page = html_of(browse(people.vera).get("/p/vision"))
    assert "<strong>bold</strong>" in page
    assert "<script>alert" not in page
    assert 'href="javascript' not in page
    assert "/p/vision/readme" not in page


def test_a_readme_that_somebody_else_saved_is_not_overwritten_and_the_text_typed_stays(
    people: Personas, browse: Browse
) -> None:
    alice, bob = browse(people.alice), browse(people.bob)
    bob.post("/p/vision/readme", {"text": "of Bob", "version": "0"})
    refused = alice.post("/p/vision/readme", {"text": "of Alice", "version": "0"})
    assert refused.status_code == 422
    page = text_of(refused)
    assert "Bob saved version 1 at " in page
    assert "of Alice" in page
    assert "of Bob" in page
    assert 'name="version" value="1"' in html_of(refused)
    assert alice.post("/p/vision/readme", {"text": "of both", "version": "1"}).status_code == 302
    assert "of both" in text_of(bob.get("/p/vision"))
