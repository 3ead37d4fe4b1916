"""``pagelab model layouts``: the layouts that a program is run under, as policies in a directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagelab import terminal
from pagelab.errors import BadInputError

if TYPE_CHECKING:
    from pagelab.layouts import Distinct, Footprint, Profile
    from pagelab.trace.pools import Pool

SELECTORS = ("campaign", "moselect", "kinds")


def layouts_command(
    source: Annotated[
        Path,
        typer.Argument(metavar="TRACE|RECORD", help="A trace (pagelab trace --pools), or a governed run's record."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Directory of the policies.")] = Path(
        "layouts"
    ),
    number: Annotated[int, typer.Option("--n", metavar="N", help="Number of layouts of a campaign.")] = 54,
    selector: Annotated[
        str,
        typer.Option(
            "--selector", metavar="NAME", help="campaign; moselect (its first nine); kinds (2^k of heap, anon, arenas)."
        ),
    ] = "campaign",
    profile: Annotated[
        Path | None,
        typer.Option("--profile", metavar="FILE", help="Misses: simulate tlb --output, or perf script's text."),
    ] = None,
    processor: Annotated[
        str | None,
        typer.Option(
            "--processor", metavar="NAME", help="Simulate the trace's misses with 4K pages on this processor."
        ),
    ] = None,
    tests: Annotated[int, typer.Option("--tests", metavar="N", help="Random test layouts (0: none).")] = 12,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of all draws.")] = 0,
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE", help="Misses along the space: .svg, .png, .html.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace existing layouts.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make layouts of 2M pages over the memory that a program really uses, for models of its run time.

    Windows that grow from nothing to all of it, random ones, and windows that slide out of where most misses are:
    MOSAIC's campaign has 54. The policies are for runs (`pagelab run --policy`) and for simulations
    (`pagelab simulate tlb --policy`).

    **Examples**

        pagelab trace capture --pools --full --marker -o gups.trace -- pagelab-workload gups --bytes 256M

        pagelab model layouts --processor broadwell -o gups-layouts gups.trace

        pagelab model layouts --n 20 --profile windows.parquet --picture misses.svg gups.trace
    """
    from pagelab import layouts
    from pagelab.layouts import files, moselect

    if selector not in SELECTORS:
        raise BadInputError(f"--selector {selector}: allowed: {', '.join(SELECTORS)}")
    if profile is not None and processor is not None:
        raise BadInputError("misses come from --profile or from --processor, not from both")
    footprint, pools = _footprint(source)
    known = _profile(source, footprint, pools, profile, processor)
    misses = None if known is None else known.misses
    if selector == "campaign":
        made = layouts.campaign(footprint, misses, number, seed)
    elif selector == "kinds":
        made = layouts.distinct(layouts.kinds(footprint))
    elif misses is None:
        raise BadInputError("moselect chooses by misses; run it with: --processor NAME, or --profile FILE")
    else:
        made = layouts.distinct(moselect.first_layouts(footprint, misses))
    judging = layouts.judges(footprint, tests, without=made.layouts, seed=seed) if tests else []
    paths = files.write(out, footprint, made.layouts, judging, known, force=force)
    if picture is not None:
        from pagelab.layouts import picture as drawing

        if known is None:
            raise BadInputError("--picture draws misses; give --processor NAME or --profile FILE")
        drawing.write(known, footprint, picture)
    _show(out, footprint, made, len(paths) - len(made.layouts), known, as_json=as_json)


def _footprint(source: Path) -> tuple[Footprint, tuple[Pool, ...]]:
    """The footprint of a trace, or of a record's JSON."""
    import json

    from pagelab.cli.simulate.values import warn_of_killed
    from pagelab.layouts import footprint
    from pagelab.layouts.layout import PLACES
    from pagelab.record import Record
    from pagelab.trace import Trace
    from pagelab.trace.pools import of_header

    try:
        with source.open("rb") as stream:
            is_json = stream.read(64).lstrip().startswith(b"{")
        if not is_json:
            warn_of_killed(source)
            return footprint.of_trace(source), of_header(Trace(source).header)
        return footprint.of_record(Record.model_validate(json.loads(source.read_text(encoding="utf-8")))), PLACES
    except OSError as error:
        raise BadInputError(f"cannot read {source}: {error.strerror} (errno {error.errno})") from error
    except ValueError as error:
        if isinstance(error, BadInputError):
            raise
        raise BadInputError(f"{source}: neither a trace nor a run's record (pagelab run --json): {error}") from error


def _profile(
    source: Path, footprint: Footprint, pools: tuple[Pool, ...], path: Path | None, processor: str | None
) -> Profile | None:
    from pagelab.layouts import perf_script, profile

    if processor is not None:
        from pagelab.simulate.placements import placement_of_pages
        from pagelab.simulate.tlb_runs import tlb

        windows = tlb(source, processor, placement_of_pages("4K")).windows
        return profile.of_windows(windows, footprint, pools)
    if path is None:
        return None
    try:
        if path.suffix in (".parquet", ".csv"):
            import polars as pl

            frame = pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_csv(path)
            return profile.of_windows(frame, footprint, pools)
        with path.open(encoding="utf-8", errors="replace") as lines:
            return profile.of_samples(perf_script.samples(lines), footprint, pools, "perf samples")
    except OSError as error:
        raise BadInputError(f"cannot read the profile {path}: {error.strerror or error}") from error


def _show(out: Path, footprint: Footprint, made: Distinct, tests: int, known: Profile | None, *, as_json: bool) -> None:
    outside = None if known is None or not known.total else known.elsewhere / known.total
    if as_json:
        import json

        document = {
            "directory": str(out),
            "tiles": len(footprint),
            "tile_bytes": footprint.page_bytes,
            "pools": list(footprint.pools),
            "asked": made.asked,
            "layouts": [layout.name for layout in made.layouts],
            "merged": [list(pair) for pair in made.merged],
            "tests": tests,
            "misses_outside": outside,
        }
        terminal.echo(json.dumps(document, indent=2))
        return
    from pagelab.analysis.wording import count

    used = f"{count(len(footprint), 'tile')} of {footprint.page_bytes >> 20} MiB in {', '.join(footprint.pools)}"
    made_of = f"{count(len(made.layouts), 'layout')} and {count(tests, 'test layout')}"
    terminal.echo(f"{out}: {made_of} over {used}")
    if made.merged:
        pairs = ", ".join(f"{name} is {kept}" for name, kept in made.merged[:4])
        more = f" and {len(made.merged) - 4} more" if len(made.merged) > 4 else ""
        terminal.echo(f"merged, because they coincide: {len(made.merged)} of {made.asked} ({pairs}{more})")
    if known is None:
        terminal.echo(
            "no misses are known: windows that would slide are random; give --processor NAME or --profile FILE"
        )
    elif outside:
        terminal.echo(
            f"{outside:.1%} of the misses lie outside of these tiles (text, stack, files), which no layout changes"
        )
    terminal.echo(
        f"next: pagelab simulate tlb TRACE --processor NAME --policy {out}/4K.toml --policy {out}/2M.toml ..."
    )
