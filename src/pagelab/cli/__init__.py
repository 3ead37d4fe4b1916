"""The ``pagelab`` command: one file a command, each imported only when it is used."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from pagelab.errors import PagelabError


@dataclass(frozen=True)
class _Entry:
    """Where a command lives; ``settings`` go to the parser of its arguments."""

    module: str
    attribute: str
    settings: dict[str, Any] = field(default_factory=dict)


# Everything after the program's name belongs to the program, with or without "--" before it.
_TAKES_A_COMMAND = {"allow_interspersed_args": False}

COMMANDS = {
    "run": _Entry("pagelab.cli.run", "run_command", _TAKES_A_COMMAND),
    "map": _Entry("pagelab.cli.map", "map_command", _TAKES_A_COMMAND),
    "stat": _Entry("pagelab.cli.stat", "stat_command"),
    "study": _Entry("pagelab.cli.study", "study_app"),
    "report": _Entry("pagelab.cli.report", "report_command"),
    "diagnose": _Entry("pagelab.cli.diagnose", "diagnose_command", _TAKES_A_COMMAND),
    "compare": _Entry("pagelab.cli.compare", "compare_command"),
    "import": _Entry("pagelab.cli.import_", "import_command"),
    "doctor": _Entry("pagelab.cli.doctor", "doctor_command"),
    "demo": _Entry("pagelab.cli.demo", "demo_command"),
}


class _LazyGroup(TyperGroup):
    """Knows its commands by name and imports one when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = COMMANDS.get(cmd_name)
        return None if entry is None else _load(cmd_name, entry)


def _load(name: str, entry: _Entry) -> Any:
    target = getattr(import_module(entry.module), entry.attribute)
    if not isinstance(target, typer.Typer):
        single = typer.Typer(add_completion=False, rich_markup_mode="markdown")
        single.command(name, context_settings=entry.settings)(target)
        target = single
    command = typer.main.get_command(target)
    command.name = name
    return command


app = typer.Typer(
    cls=_LazyGroup,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="A laboratory for virtual-memory page placement: where, how big and when a program's pages come into memory.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"pagelab {version('pagelab')}")
        raise typer.Exit


@app.callback()
def _root(
    _version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Show the version."),
) -> None:
    pass


def main() -> None:
    """Runs the command line; the one place that turns an error into an exit code."""
    try:
        app()
    except KeyboardInterrupt:
        sys.stderr.write("pagelab: interrupted\n")
        sys.exit(130)
    except PagelabError as error:
        sys.stderr.write(f"pagelab: {error}\n")
        sys.exit(error.exit_code)
