"""Simulates memories of chosen sizes under FIFO, CLOCK, random replacement and OPT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pagelab.errors import BadInputError
from pagelab.simulate.traces import Report, Trace, exact_from, feed, no_references

if TYPE_CHECKING:
    import polars as pl

    from pagelab._native import Paging

POLICIES = ("lru", "fifo", "clock", "random", "opt")
_FRAMES = 1 << 32
"""Frames have 32-bit numbers, in which the colour has bits of its own."""


def replacement(
    trace: Trace,
    policies: Sequence[str],
    memory: Sequence[int],
    colours: Sequence[int] = (1,),
    *,
    colouring: str = "modulo",
    masks: Sequence[int] = (),
    page_bytes: int = 4096,
    seed: int = 1,
    report: Report | None = None,
) -> pl.DataFrame:
    """Faults of each policy at each memory size (in pages) and colour count, all in one reading of the trace.

    A memory of M frames with c colours is c lists of M/c frames, each with its own replacement; sizes that a count does
    not divide are left out. CLOCK: a new page counts as used. Random: ``seed`` fixes the draws. Reduced traces are
    exact for LRU only, from a stated size up: the rest is refused.

    Columns: policy, colours, memory_pages, references, faults, faults_per_million. Raises :class:`BadInputError`.
    """
    import polars as pl

    unknown = [policy for policy in policies if policy not in POLICIES]
    if unknown:
        raise BadInputError(f"policy {unknown[0]}: not known; allowed: {', '.join(POLICIES)}")
    sizes = [(c, m // c) for c in colours for m in sorted(set(memory)) if c > 0 and m > 0 and m % c == 0]
    if not sizes:
        raise BadInputError("no memory size is a multiple of a colour count: there is nothing to simulate")
    for count, frames in sizes:
        if frames << (count - 1).bit_length() >= _FRAMES:
            raise BadInputError(
                f"memory of {count * frames:,} pages in {count} colours: several policies, and others than LRU, are "
                f"simulated with at most {(_FRAMES - 1 >> (count - 1).bit_length()) * count:,} pages; name smaller "
                "sizes: --memory"
            )

    def require(header: dict[str, Any]) -> None:
        _require_exact(header, policies, sizes, colouring, page_bytes)

    running = _simulations(policies, sizes, colouring, list(masks), seed)
    feed(running, trace, page_bytes=page_bytes, require=require, report=report)
    rows = []
    for policy, simulation in zip(policies, running, strict=True):
        references, found = simulation.faults()
        rows += [(policy, c, c * frames, references, faults) for c, frames, faults in found]
    schema = {
        "policy": pl.String,
        "colours": pl.Int64,
        "memory_pages": pl.Int64,
        "references": pl.UInt64,
        "faults": pl.UInt64,
    }
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    if frame["references"][0] == 0:
        raise no_references(trace)
    return frame.with_columns(faults_per_million=pl.col("faults") / pl.col("references") * 1e6)


def _require_exact(
    header: dict[str, Any],
    policies: Sequence[str],
    sizes: Sequence[tuple[int, int]],
    colouring: str,
    page_bytes: int,
) -> None:
    """Refuses requests for which a reduced trace is not exact."""
    if header.get("reduction") is None:
        return
    if set(policies) != {"lru"}:
        raise BadInputError("the trace is reduced, which is exact for LRU only; simulate the whole trace")
    least = exact_from(header, sorted({count for count, _ in sizes}), colouring, page_bytes)
    smallest = min(count * frames for count, frames in sizes)
    if smallest < least:
        raise BadInputError(f"the trace was reduced for memories from {least} pages on, not for {smallest}")


def _simulations(
    policies: Sequence[str], sizes: list[tuple[int, int]], colouring: str, masks: list[int], seed: int
) -> list[Paging]:
    from pagelab._native import Paging

    try:
        return [Paging.memories(policy, colouring, masks, sizes, seed) for policy in policies]
    except (ValueError, OverflowError) as error:
        raise BadInputError(str(error)) from error
