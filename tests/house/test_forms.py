"""Forms in templates: what a GET form holds is in the address, so no token is among it."""

import re

from tests.house.sources import texts

_FORM = re.compile(r"<form\b([^>]*)>(.*?)</form>", re.DOTALL | re.IGNORECASE)
_POST = re.compile(r"\bmethod=[\"']?post\b", re.IGNORECASE)


def _tokens_in_get_forms(text: str) -> list[str]:
    forms = _FORM.findall(text)
    return [head for head, body in forms if not _POST.search(head) and "csrf_token" in body]


def test_no_get_form_carries_a_csrf_token() -> None:
    templates = {name: text for name, text in texts().items() if name.endswith(".html")}
    assert len(templates) > 100
    assert not {name for name, text in templates.items() if _tokens_in_get_forms(text)}


def test_a_token_in_a_get_form_is_noticed() -> None:
    assert _tokens_in_get_forms('<form action="/x">{% csrf_token %}</form>')
    assert not _tokens_in_get_forms('<form method="post">{% csrf_token %}</form>')
