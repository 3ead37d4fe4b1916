"""The ``pagelab`` command: the steps before any heavy import."""

from __future__ import annotations

import sys

from pagelab.cli import limits
from pagelab.errors import PagelabError


def main() -> None:
    """Runs the command line; the one place that turns an error into an exit code."""
    found = limits.tight()
    if not found:
        from pagelab.cli import trouble

        trouble.reporting(_run)
        return
    command = limits.command_of(sys.argv[1:])
    limits.prepare(command)
    limits.guarded(_run, command, found)


def _run() -> None:
    from pagelab import terminal
    from pagelab.cli import quick

    terminal.open_streams()
    terminal.tolerate()
    try:
        code = quick.attempt(sys.argv[1:])
        if code is None:
            code = _parse()
        if code == 130:
            terminal.say("pagelab: interrupted\n")
        sys.exit(code)
    except KeyboardInterrupt:
        terminal.say("pagelab: interrupted\n")
        sys.exit(130)
    except PagelabError as error:
        terminal.say(f"pagelab: {error}\n")
        sys.exit(error.exit_code)


def _parse() -> int | None:
    """The command that the command line names, with the parser of all options; its exit code."""
    import typer

    from pagelab.cli import habits

    try:
        from pagelab.cli.commands import app

        code: int | None = habits.adapt(typer.main.get_command(app))(prog_name="pagelab", standalone_mode=False)
    except habits.MISTAKE as error:
        return habits.answer(error)
    except typer.Abort:
        return 1
    return code
