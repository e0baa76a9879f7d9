"""The icons of the pages: Tabler's outline drawings (MIT licence), put into the page as SVG."""

import re
from functools import cache
from pathlib import Path

from django.conf import settings
from django.utils.safestring import SafeString, mark_safe

# All icons that pages may use. Any other name is a mistake in a template.
CHOSEN = frozenset(
    {
        "adjustments",
        "alert-triangle",
        "archive",
        "arrow-back-up",
        "bell",
        "book",
        "book-2",
        "broadcast",
        "chart-line",
        "check",
        "chevron-right",
        "circle-check",
        "circle-dashed",
        "clock",
        "code",
        "coins",
        "copy",
        "cpu",
        "device-desktop",
        "devices",
        "download",
        "external-link",
        "file",
        "file-text",
        "flask",
        "folder",
        "folder-plus",
        "folders",
        "gauge",
        "git-commit",
        "history",
        "home",
        "key",
        "layout-dashboard",
        "lock",
        "login",
        "logout",
        "mail",
        "menu-2",
        "moon",
        "notebook",
        "packages",
        "player-pause",
        "player-play",
        "player-stop",
        "pencil",
        "plus",
        "rocket",
        "scale",
        "search",
        "selector",
        "send",
        "server-2",
        "settings",
        "sitemap",
        "stack-2",
        "sun",
        "terminal-2",
        "topology-star-3",
        "trash",
        "upload",
        "user",
        "user-check",
        "user-cog",
        "user-minus",
        "user-plus",
        "users",
        "users-group",
        "wallet",
    }
)
_FOLDER = Path("node_modules") / "@tabler" / "icons" / "icons" / "outline"
_DRAWING = re.compile(r"<svg[^>]*>(.*)</svg>", re.DOTALL)
_BACKGROUND = '<path stroke="none" d="M0 0h24v24H0z" fill="none" />'


class UnknownIcon(LookupError):
    """A page asks for an icon that was not chosen."""


@cache
def drawing_of(name: str) -> str:
    """Return the paths of a chosen icon, or raise UnknownIcon for any other."""
    if name not in CHOSEN:
        raise UnknownIcon(f"{name} is not among the icons in portal/web/base/icons.py")
    path = Path(settings.SLIPWAY_ROOT) / _FOLDER / f"{name}.svg"
    match = _DRAWING.search(path.read_text(encoding="utf-8"))
    if match is None:
        raise UnknownIcon(f"{path.name} is not a drawing")
    paths = match.group(1).replace(_BACKGROUND, "")
    return re.sub(r">\s+<", "><", paths.strip())


@cache
def svg(name: str, extra: str = "") -> SafeString:
    """Return the icon as inline SVG, hidden from screen readers: the text beside it speaks."""
    classes = f"icon {extra}".strip()
    return mark_safe(  # noqa: S308  (the icons are our own files, and names are checked above)
        f'<svg class="{classes}" xmlns="http://www.w3.org/2000/svg" width="24" height="24" '
        'viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="2" '
        f'stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">{drawing_of(name)}'
        "</svg>"
    )
