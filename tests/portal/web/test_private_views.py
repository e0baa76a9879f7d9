"""Views of runs that exist on the pages of one person."""

from portal.experiments.models import SavedView
from tests.personas import Personas
from tests.portal.web.conftest import Browse
from tests.portal.web.reading import html_of, text_of


def test_a_view_that_is_saved_for_one_person_is_on_no_page_of_others(
    people: Personas, browse: Browse
) -> None:
    bob, alice = browse(people.bob), browse(people.alice)
    page = bob.post(
        "/p/vision/views", {"name": "Only mine", "query": "q=first", "private": "1"}, follow=True
    )
    assert "View Only mine saved. Only you see it." in text_of(page)
    view = SavedView.objects.get()
    address = f"/p/vision/views/{view.pk}"
    assert f"{address}/share" in html_of(bob.get("/p/vision/runs"))
    pick = "/p/vision/reports/pick?kind=view"
    assert [it["label"] for it in bob.get(pick).json()["items"]] == ["Only mine"]
    assert alice.get(pick).json()["items"] == []
    assert "Only mine" not in html_of(alice.get("/p/vision/runs"))
    for refused in (
        alice.get(address),
        alice.post(f"{address}/share"),
        alice.post(f"{address}/delete"),
    ):
        assert refused.status_code == 404
    page = bob.post(f"{address}/share", follow=True)
    assert "The project shares the view Only mine now." in text_of(page)
    assert "Only mine" in html_of(alice.get("/p/vision/runs"))
    assert f"{address}/share" not in html_of(bob.get("/p/vision/runs"))
