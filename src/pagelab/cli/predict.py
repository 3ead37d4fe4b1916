"""``pagelab predict``: a run time from H, M and C, by the models of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pagelab import terminal


def predict_command(
    file: Annotated[Path, typer.Argument(metavar="NAME.model", help="A file of pagelab model import.")],
    h: Annotated[float | None, typer.Option("--h", metavar="COUNT", help="Hits in the second-level TLB.")] = None,
    m: Annotated[float | None, typer.Option("--m", metavar="COUNT", help="Misses of the second-level TLB.")] = None,
    c: Annotated[float | None, typer.Option("--c", metavar="CYCLES", help="Walk cycles.")] = None,
    processor: Annotated[
        str | None,
        typer.Option("--processor", metavar="NAME|FILE", help="Simulate the counts: with the TLB of this processor."),
    ] = None,
    pages: Annotated[
        str | None, typer.Option("--pages", metavar="SIZE", help="And with these pages: 4K, 2M, 1G, heap=0-64M:2M.")
    ] = None,
    policy: Annotated[
        Path | None, typer.Option("--policy", metavar="FILE", help="Or with a policy's pages: TOML, Mosalloc CSV.")
    ] = None,
    model: Annotated[str, typer.Option("--model", metavar="NAME", help="The model; only gp has an interval.")] = "gp",
    run: Annotated[
        bool, typer.Option("--run/--mean", help="Interval of one run, or of a layout's mean over many.")
    ] = False,
    level: Annotated[float, typer.Option("--level", help="Level of the interval.")] = 0.95,
    as_json: Annotated[bool, typer.Option("--json", help="Print the prediction as JSON.")] = False,
) -> None:
    """Predict a run time from H, M and C of any simulator: of another TLB, page size or allocator.

    The model is fitted to the file's training layouts. Counts must be of the same source and units as theirs. For a
    model of `pagelab model run` they can be simulated, from its own trace: `--processor`, `--pages`, `--policy`.

    **Examples**

        pagelab predict gups.model --h 1.2e9 --m 4e7 --c 3e9

        pagelab predict gups.model --c 3e9 --model yaniv --json

        pagelab predict solver.model --processor sapphire-rapids --pages 1G
    """
    from pagelab.errors import BadInputError
    from pagelab.models.document import read
    from pagelab.models.prediction import predict

    if processor is None and pages is None and policy is None:
        told = predict(read(file), h, m, c, model=model, of="run" if run else "mean", level=level)
    else:
        from pagelab.model_run.predicting import predict_for

        if any(value is not None for value in (h, m, c)):
            raise BadInputError(
                "counts are given (--h, --m, --c) or simulated (--processor, --pages, --policy), not both"
            )
        if pages is not None and policy is not None:
            raise BadInputError("--pages and --policy: give one of them")
        told = predict_for(
            read(file), file, processor, pages, policy, model=model, of="run" if run else "mean", level=level
        )
    terminal.echo(told.model_dump_json(by_alias=True, indent=1) if as_json else told.text())
