"""Command groups that are imported on first use, to keep the start of every command fast."""

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any

import typer
import typer.core
import typer.main

Command = Any  # Typer carries its own copy of Click, whose types it does not offer

NOUNS = (
    *("job", "sweep", "optuna", "pipeline", "schedule", "env", "notebook", "workspace"),
    *("run", "dataset", "model", "endpoint"),
    *("project", "team", "note"),
    *("invitation", "service-account", "secret", "token"),
    *("tier", "pool", "node-group", "node", "audit", "budget", "report"),
)
VERBS = ("train", "spend", "notifications")


class _Commands(MutableMapping[str, Command]):
    """Commands by name, in help order. Commands of other modules are imported on access."""

    def __init__(self, given: Mapping[str, Command]) -> None:
        self._loaded = dict(given)
        self._names = dict.fromkeys([*given, *VERBS, *NOUNS])

    def __getitem__(self, name: str) -> Command:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._loaded:
            self._loaded[name] = _load(name)
        return self._loaded[name]

    def __setitem__(self, name: str, command: Command) -> None:
        self._names[name] = None
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._names[name]
        self._loaded.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Root(typer.core.TyperGroup):
    """The root command, with groups that are imported on first use."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Commands(self.commands)


def _load(name: str) -> Command:
    module = import_module(f"slipway.cli.{name.replace('-', '_')}")
    above = typer.Typer()
    if name in NOUNS:
        above.add_typer(module.app, name=name)
    else:
        above = module.app
    return typer.main.get_group(above).commands[name]
