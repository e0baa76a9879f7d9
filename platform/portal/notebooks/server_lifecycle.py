"""The life of a notebook server: states and allowed moves. No Django, no I/O.

    stopped → starting → opening → ready → stopping → stopped

Each start is a workload of its own. `opening` waits for the Hub to open the route for browsers.
A start that ended badly leaves `failed`. A server that is requeued starts anew.
"""

from collections.abc import Mapping

from slipway.schemas.notebook_servers import NotebookState

_S = NotebookState
# States in which a server has a workload that has not ended.
ALIVE = frozenset({_S.STARTING, _S.OPENING, _S.READY, _S.STOPPING})
AT_REST = frozenset({_S.STOPPED, _S.FAILED})

_ENDS = frozenset({_S.STOPPING, _S.STOPPED, _S.FAILED})
MOVES: Mapping[NotebookState, frozenset[NotebookState]] = {
    _S.STOPPED: frozenset({_S.STARTING}),
    _S.FAILED: frozenset({_S.STARTING}),
    _S.STARTING: frozenset({_S.OPENING}) | _ENDS,
    _S.OPENING: frozenset({_S.READY, _S.STARTING}) | _ENDS,
    _S.READY: frozenset({_S.STARTING}) | _ENDS,
    _S.STOPPING: frozenset({_S.STOPPED, _S.FAILED, _S.STARTING}),
}


def sources_of(target: NotebookState) -> list[NotebookState]:
    """Return the states from which a server may move to `target`."""
    return [state for state, targets in MOVES.items() if target in targets]
