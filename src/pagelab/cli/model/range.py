"""``pagelab model range``: layouts of equal C and different R."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pagelab import terminal
from pagelab.cli.options import Seed
from pagelab.cli.times import minutes as minutes_of
from pagelab.errors import BadInputError


def range_command(
    directory: Annotated[Path, typer.Argument(metavar="NAME.model", help="A directory of pagelab model run.")],
    at: Annotated[
        float, typer.Option("--at", metavar="PERCENT", help="The level of C: 0 is that of 2M pages, 100 of 4K pages.")
    ] = 50.0,
    minutes: Annotated[
        float, typer.Option("--minutes", "-m", parser=minutes_of, metavar="N", help="Time for the runs.")
    ] = 5.0,
    seed: Seed = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the layouts and the floor as JSON.")] = False,
) -> None:
    """Run layouts of equal walk cycles C at different places, to find the least error of any model in C alone.

    Large pages go to the program's tiles upwards, downwards, hottest first and in further orders, each until the
    simulated C is at the level. Given again, the same command goes on.

    **Examples**

        pagelab model range solver.model

        pagelab model range solver.model --at 25 --minutes 10
    """
    if not 0.02 <= minutes <= 7 * 24 * 60:
        raise BadInputError(f"--minutes {minutes:g}: not within 0.02 ... {7 * 24 * 60}")
    from pagelab.model_run.ranging import ranged, text
    from pagelab.study.launching import local_tools
    from pagelab.study.progress import for_terminal

    found = ranged(directory.resolve(), at / 100, minutes, local_tools(), for_terminal(), seed)
    terminal.echo(found.model_dump_json(by_alias=True, indent=1) if as_json else text(found))
