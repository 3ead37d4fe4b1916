"""``pagelab model check``: pages that the campaign did not have, measured, and how far each model is off."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pagelab import terminal
from pagelab.cli.options import Seed
from pagelab.cli.times import minutes as minutes_of
from pagelab.errors import BadInputError


def check_command(
    directory: Annotated[Path, typer.Argument(metavar="NAME.model", help="A directory of pagelab model run.")],
    pages: Annotated[
        str | None, typer.Option("--pages", metavar="SIZE", help="Pages to check: 1G (default), 64K, heap=0-64M:2M.")
    ] = None,
    policy: Annotated[
        Path | None, typer.Option("--policy", metavar="FILE", help="Pages of a policy instead: TOML, Mosalloc CSV.")
    ] = None,
    minutes: Annotated[
        float, typer.Option("--minutes", "-m", parser=minutes_of, metavar="N", help="Time for the runs.")
    ] = 5.0,
    seed: Seed = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the model's file with this layout as its only test.")
    ] = False,
) -> None:
    """Run the program in pages that no layout of its model had, and compare with what every model predicts.

    The models were fitted to layouts in 4K and 2M pages; in 1G pages this is the paper's own case study. The executions
    are interleaved with 4K and 2M pages, by which a change of the machine since then is told and taken out. Given
    again, the same command goes on.

    **Examples**

        pagelab model check solver.model --pages 1G

        pagelab model check solver.model --policy advised.toml --minutes 10
    """
    if not 0.02 <= minutes <= 7 * 24 * 60:
        raise BadInputError(f"--minutes {minutes:g}: not within 0.02 ... {7 * 24 * 60}")
    if pages is not None and policy is not None:
        raise BadInputError("--pages and --policy: give one of them")
    from pagelab.model_run.checking import checked, text
    from pagelab.study.launching import local_tools
    from pagelab.study.progress import for_terminal

    found, kept = checked(directory.resolve(), pages, policy, minutes, local_tools(), for_terminal(), seed)
    terminal.echo(found.model_dump_json(by_alias=True, indent=1) if as_json else text(found, kept))
