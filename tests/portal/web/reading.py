"""Reading pages as a person does: what stands in them, what their forms hold and complain of."""

import re
from html import unescape
from typing import Any


def text_of(answer: Any) -> str:
    """The words of a page, without its tags."""
    plain = re.sub(r"<(script|style)[^>]*>.*?</\1>|<[^>]+>", " ", html_of(answer), flags=re.DOTALL)
    return re.sub(r"\s+", " ", unescape(plain)).strip()


def html_of(answer: Any) -> str:
    """The page as it was sent."""
    return str(answer.content.decode())


def fault_of(answer: Any, field: str) -> str:
    """What stands beside a field as its error; empty when it has none."""
    match = re.search(rf'id="id_{field}_error">(.*?)</ul>', html_of(answer), re.DOTALL)
    return re.sub(r"<[^>]+>|\s+", " ", unescape(match.group(1))).strip() if match else ""


def form_of(answer: Any) -> Any:
    """The form the page was drawn with."""
    return answer.context["form"]
