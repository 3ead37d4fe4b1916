"""``pagelab doctor --probe-colours``: conflicts between pages of one colour on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pagelab import terminal
from pagelab.errors import BadInputError

if TYPE_CHECKING:
    from rich.console import Console

    from pagelab.machine.colours.model import CacheVerdict, Ratio

MOST_ROUNDS = 10_000


def probe_colours(*, as_json: bool, rounds: int | None) -> None:
    """Measures, stores the verdict, and shows it."""

    from pagelab.machine.colours.store import store
    from pagelab.machine.probe_colours import ROUNDS, probe

    if rounds is not None and not 10 <= rounds <= MOST_ROUNDS:
        raise BadInputError(f"--rounds {rounds}: allowed: 10 to {MOST_ROUNDS}; without it, {ROUNDS} are made")
    status = terminal.console(stderr=True)
    with status.status("measuring chains of pages …") as spinner:
        found = probe(
            rounds=rounds or ROUNDS, telling=lambda what: spinner.update(f"measuring chains of pages: {what} …")
        )
    path = store(found)
    if as_json:
        terminal.echo(found.model_dump_json(by_alias=True, indent=2))
        return
    console = terminal.console()
    for cache in found.caches:
        _show(console, cache)
    console.print(f"\nVerdict: {found.verdict}", style="bold", highlight=False, soft_wrap=True)
    console.print(f"stored in {path}; it goes into the record of every run", highlight=False, soft_wrap=True)


def _show(console: Console, cache: CacheVerdict) -> None:
    from rich.table import Table

    size = cache.size_bytes >> 10
    console.print(
        f"\nL{cache.level}: {size} KiB, {cache.ways} ways, {cache.colours} colours by its size",
        style="bold",
        highlight=False,
    )
    table = Table("pages in the chain", "of one colour", "of conflicting pages", "spread", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    by_length: dict[int, dict[str, Ratio]] = {}
    for one in cache.ratios:
        by_length.setdefault(one.chain_pages, {})[one.kind] = one
    for pages, kinds in sorted(by_length.items()):
        first = next(iter(kinds.values()))
        room = {"yes": "fit", "just": "just fit", "no": "exceed the ways"}[first.fits]
        cells = [_ratio(kinds.get(kind)) for kind in ("same", "conflict")]
        table.add_row(f"{pages} ({room})", *cells, f"{first.spread_ns_per_load:.2f} ns a load")
    console.print(table)
    level = cache.ratios[0].level if cache.ratios else 0.95
    console.print(
        f"ratio to the spread chain: median of paired rounds, exact {level:.0%} interval", style="dim", highlight=False
    )
    if cache.classes:
        console.print(
            f"{cache.classes} sets of pages that conflict were found by timing, {cache.class_pages} pages",
            style="dim",
            highlight=False,
        )
    console.print(f"L{cache.level}: {cache.verdict}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"because {cache.reason}", highlight=False, markup=False, soft_wrap=True)
    if cache.masks:
        listed = ", ".join(f'"{mask}"' for mask in cache.masks)
        console.print(f"masks = [{listed}]", highlight=False, markup=False, soft_wrap=True)


def _ratio(one: Ratio | None) -> str:
    if one is None:
        return "–"
    if one.low is None or one.high is None:
        return f"{one.median:.2f} (too few rounds for an interval)"
    return f"{one.median:.2f} ({one.low:.2f} to {one.high:.2f})"
