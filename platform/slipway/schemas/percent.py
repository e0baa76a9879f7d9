"""Shares as text: one form for pages, alerts and the command line."""


def percent(share: float, digits: int = 1) -> str:
    """Return a share (0 to 1) as a percentage such as `97.5 %`."""
    return f"{100 * share:.{digits}f} %"
