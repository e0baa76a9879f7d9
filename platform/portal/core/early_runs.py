"""Requests to run a periodic task before its time, within the process that runs such tasks.

A task that finds work for a periodic one asks for it here, and saves the wait for the next period.
In a process that does not lead, nobody answers: the leader finds the work when its period is over.
"""

import threading

_names: set[str] = set()
_lock = threading.Lock()
_is_asked = threading.Event()


def run_soon(task: str) -> None:
    """Ask for a periodic task by its name. Several requests before its run are one."""
    with _lock:
        _names.add(task)
    _is_asked.set()


def wait_for_requests(within_s: float) -> None:
    """Return when somebody asks, or after `within_s` seconds."""
    _is_asked.wait(within_s)


def wake() -> None:
    """End a wait for requests."""
    _is_asked.set()


def take_requests() -> frozenset[str]:
    """Return the tasks that were asked for since the last call."""
    with _lock:
        taken = frozenset(_names)
        _names.clear()
        _is_asked.clear()
    return taken
