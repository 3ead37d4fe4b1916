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
    import typer

    from pagelab import terminal
    from pagelab.cli import habits

    try:
        from pagelab.cli.commands import app

        code = habits.adapt(typer.main.get_command(app))(prog_name="pagelab", standalone_mode=False)
        if code == 130:
            terminal.say("pagelab: interrupted\n")
        sys.exit(code)
    except habits.MISTAKE as error:
        sys.exit(habits.answer(error))
    except typer.Abort:
        sys.exit(1)
    except KeyboardInterrupt:
        terminal.say("pagelab: interrupted\n")
        sys.exit(130)
    except PagelabError as error:
        terminal.say(f"pagelab: {error}\n")
        sys.exit(error.exit_code)
