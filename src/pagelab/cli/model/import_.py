"""``pagelab model import``: layouts' run times and counts from a CSV into a model's file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from pagelab import terminal


def import_command(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A CSV with a header: one row per layout, or per repeat of it.")
    ],
    into: Annotated[
        Path | None, typer.Option("--into", metavar="NAME.model", help="The model's file (default: FILE.model).")
    ] = None,
    workload: Annotated[
        str | None, typer.Option("--workload", metavar="NAME", help="What ran (default: the file's name).")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="KEY=NAME", help="Where r, h, m, c, layout, role, r_sd or repeats is."),
    ] = None,
    where: Annotated[
        list[str] | None, typer.Option("--where", metavar="COLUMN=VALUE", help="Only rows with this value.")
    ] = None,
    anchor_4k: Annotated[
        str | None, typer.Option("--anchor-4k", metavar="LAYOUT", help="The layout of 4 KiB pages alone.")
    ] = None,
    anchor_2m: Annotated[
        str | None, typer.Option("--anchor-2m", metavar="LAYOUT", help="The layout of 2 MiB pages alone.")
    ] = None,
    test: Annotated[
        list[str] | None,
        typer.Option("--test", metavar="LAYOUT", help="A layout that only judges; repeat for several."),
    ] = None,
    source: Annotated[
        str, typer.Option("--source", metavar="WHICH", help="Where H, M and C are from: counted, simulated.")
    ] = "counted",
    cycles: Annotated[
        str | None,
        typer.Option("--cycles", metavar="WHICH", help="C: sum of all walkers (sum), or cycles with a walk (active)."),
    ] = None,
    walkers: Annotated[int, typer.Option("--walkers", min=1, max=64, help="Page walkers of the processor.")] = 2,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the model's file as JSON.")] = False,
) -> None:
    """Import layouts for models: mosmodel's mean.csv, or any CSV with R, H, M and C.

    R is run time in cycles, H and M are hits and misses of the second-level TLB, C is walk cycles. Columns are found by
    the names of mosmodel (cpu-cycles, stlb_hits, stlb_misses, walk_cycles), of perf's events, and by their letters.
    Several rows of one layout are its repeats: their mean is fitted, their spread is the noise. A role column says
    train or test.

    **Examples**

        pagelab model import mean.csv --into gups.model

        pagelab model import runs.csv --column r=cycles --anchor-4k all-small --anchor-2m all-huge --into solver.model

        pagelab model import both.csv --where machine=skylake --workload gups --into skylake.model
    """
    from pagelab.errors import BadInputError
    from pagelab.models.document import file_of, write
    from pagelab.models.importing import Reading, read_csv
    from pagelab.models.points import CyclesKind, Source

    out = into or file.with_suffix(".model")
    if out.is_dir():
        what = "the directory of a campaign" if (out / "campaign.json").exists() else "a directory"
        raise BadInputError(f"--into {out}: it is {what}; choose another: --into NAME.model")
    if out.exists() and not force:
        raise BadInputError(f"--into {out}: it exists; replace it with --force")
    anchors = {size: name for size, name in (("4K", anchor_4k), ("2M", anchor_2m)) if name is not None}
    reading = Reading(
        workload=workload,
        columns=_pairs("--column", column),
        where=_pairs("--where", where),
        anchors=anchors,
        tests=tuple(test or ()),
        source=_one_of("--source", source, get_args(Source)),
        cycles=None if cycles is None else _one_of("--cycles", cycles, get_args(CyclesKind)),
        walkers=walkers,
    )
    points = read_csv(file, reading)
    made = file_of(points, file)
    write(out, made)
    if as_json:
        terminal.echo(made.model_dump_json(by_alias=True, indent=1))
        return
    roles = f"{points.roles.count('train')} layouts to fit, {points.roles.count('test')} to test"
    from pagelab.errors import quoted

    columns = ", ".join(["R", *(name.upper() for name in points.inputs)])
    terminal.echo(f"{points.workload}: {roles}; {columns}, {points.source}")
    for size, name in points.anchors.items():
        terminal.echo(f"{size} pages: {name}")
    for warning in points.warnings():
        terminal.echo(f"warning: {warning.message}")
    terminal.echo(f"next: pagelab model fit {quoted(out)}")


def _pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    from pagelab.errors import BadInputError

    found = {}
    for text in texts or []:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise BadInputError(f"{option} {text}: write it as KEY=VALUE")
        found[key] = value
    return found


def _one_of(option: str, text: str, allowed: tuple[Any, ...]) -> Any:
    from pagelab.errors import BadInputError

    if text not in allowed:
        raise BadInputError(f"{option} {text}: allowed: {', '.join(allowed)}")
    return text
