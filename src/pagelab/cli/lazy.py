"""Command groups that know their commands by name and import each command at its first use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from pagelab.cli.habits import CONTEXT


@dataclass(frozen=True)
class Entry:
    """The place of a command, or of a group; ``settings`` go to the parser of its arguments."""

    module: str
    attribute: str
    settings: dict[str, Any] = field(default_factory=dict)


def group(entries: Mapping[str, Entry], text: str, **settings: Any) -> typer.Typer:
    """A group of the commands ``entries``, with ``text`` as its help."""

    class Group(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return list(entries)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            entry = entries.get(cmd_name)
            return None if entry is None else _load(cmd_name, entry)

    app = typer.Typer(
        cls=Group, context_settings=CONTEXT, no_args_is_help=True, rich_markup_mode="markdown", help=text, **settings
    )
    app.callback()(_nothing)  # without a callback typer folds a group of one command into that command
    return app


def _nothing() -> None:
    pass


def _load(name: str, entry: Entry) -> Any:
    target = getattr(import_module(entry.module), entry.attribute)
    if not isinstance(target, typer.Typer):
        single = typer.Typer(add_completion=False, rich_markup_mode="markdown")
        single.command(name, context_settings=entry.settings)(target)
        target = single
    command = typer.main.get_command(target)
    command.name = name
    return command
