"""Short browser names from user agents, so that people recognise their sessions."""

import re

_BROWSERS = (
    ("Edg", "Edge"),
    ("OPR", "Opera"),
    ("Firefox", "Firefox"),
    ("Chrome", "Chrome"),
    ("Safari", "Safari"),
    ("curl", "curl"),
)
_SYSTEMS = (
    ("Windows", "Windows"),
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)


def browser_of(user_agent: str) -> str:
    """Return for example `Firefox on Linux`, or `Unknown browser`."""
    browser = next((name for mark, name in _BROWSERS if mark in user_agent), None)
    system = next((name for mark, name in _SYSTEMS if mark in user_agent), None)
    if browser is None:
        first = re.match(r"[\w.-]{1,40}", user_agent)
        browser = first.group() if first and system is None else "Unknown browser"
    return f"{browser} on {system}" if system else browser
