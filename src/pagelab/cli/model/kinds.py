"""``pagelab model kinds``: which kind of memory decides the run time, from all combinations of 4K and 2M pages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pagelab import terminal
from pagelab.cli.options import MEASURE, OUTPUT, Minutes, Seed, Timeout, checked, command_words, described, one_of
from pagelab.errors import BadInputError

if TYPE_CHECKING:
    from pagelab.model_run.document import Asked


def kinds_command(
    argv: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME.model | [--] CMD...",
            help="A model's directory, or the program and arguments.",
            callback=command_words,
        ),
    ],
    minutes: Minutes = 5.0,
    counts: Annotated[
        str,
        typer.Option(
            "--counts",
            metavar="WAY",
            help="H, M and C: measured, simulated, or auto: measured where they are counted.",
            rich_help_panel=MEASURE,
        ),
    ] = "auto",
    processor: Annotated[
        str | None,
        typer.Option("--processor", metavar="NAME|FILE", help="Simulate this processor.", rich_help_panel=MEASURE),
    ] = None,
    window: Annotated[
        str | None,
        typer.Option("--window", metavar="NAME", help="R is the time in this window.", rich_help_panel=MEASURE),
    ] = None,
    timeout: Timeout = None,
    seed: Seed = 1,
    into: Annotated[
        Path | None,
        typer.Option("--into", metavar="DIR", help="Directory (default: CMD.kinds).", rich_help_panel=OUTPUT),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the effects as JSON.", rich_help_panel=OUTPUT)] = False,
) -> None:
    """Find which kind of memory decides the run time: heap, anonymous mappings or arenas, in 4K or in 2M pages.

    A first execution shows how much the program has of each kind; a kind that it hardly uses is left out. All
    combinations of the others run interleaved, and main effects and interactions are found within blocks. For a
    model's directory, the model's command is run, with H, M and C from the model's source. An interrupted design
    continues when the same command is typed again.

    **Examples**

        pagelab model kinds -- ./solver big.in

        pagelab model kinds --minutes 20 --counts simulated -- ./solver big.in

        pagelab model kinds solver.model
    """
    checked(seed=seed, minutes=minutes)
    model = Path(argv[0])
    of_a_model = len(argv) == 1 and model.is_dir()
    if of_a_model:
        of_its_own = {"--counts": counts != "auto", "--processor": processor, "--window": window, "--timeout": timeout}
        for option, given in of_its_own.items():
            if given:
                raise BadInputError(f"{option}: {model} has its own; leave it out, or give the command: -- CMD")
    from pagelab.model_run.kinds import kinds, of_model
    from pagelab.model_run.kinds_answer import text
    from pagelab.study.launching import local_tools
    from pagelab.study.progress import for_terminal

    asked = (
        of_model(model.resolve(), minutes, seed)
        if of_a_model
        else _asked(
            argv=argv,
            cwd=str(Path.cwd()),
            minutes=minutes,
            counts=counts,
            processor=described(processor),
            select="random",
            window=window,
            seed=seed,
            timeout_s=timeout,
        )
    )
    directory = into or Path(f"{model.name if not of_a_model else model.stem}.kinds")
    found = kinds(asked, directory.resolve(), local_tools(), for_terminal())
    terminal.echo(found.model_dump_json(by_alias=True, indent=1) if as_json else text(found))


def _asked(**values: Any) -> Asked:
    from pagelab.model_run.document import Asked, CountsWay

    one_of("--counts", values["counts"], CountsWay)
    return Asked(**values)
