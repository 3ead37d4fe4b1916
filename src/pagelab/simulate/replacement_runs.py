"""Memories of chosen sizes under FIFO, CLOCK, random replacement and OPT."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from os import PathLike
from typing import TYPE_CHECKING, Any

from pagelab.errors import BadInputError, MachineError
from pagelab.simulate.traces import Report, Trace, exact_from, feed

if TYPE_CHECKING:
    import polars as pl

    from pagelab._native import Paging

POLICIES = ("lru", "fifo", "clock", "random", "opt")


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
    spill: str | PathLike[str] | None = None,
    report: Report | None = None,
) -> pl.DataFrame:
    """Faults of each policy at each memory size (in pages) and colour count, all in one reading of the trace.

    A memory of M frames with c colours is c lists of M/c frames, each with its own replacement; sizes that a count does
    not divide are left out. CLOCK: a new page counts as used. Random: ``seed`` fixes the draws. OPT goes over its
    references twice more, in unnamed files in the directory ``spill`` (default: the system's for temporary files), 12
    bytes for each change of page. Reduced traces are exact for LRU only, from a stated size up: the rest is refused.

    Columns: policy, colours, memory_pages, references, faults, faults_per_million. Raises :class:`BadInputError`.
    """
    import polars as pl

    unknown = [policy for policy in policies if policy not in POLICIES]
    if unknown:
        raise BadInputError(f"policy {unknown[0]}: not known; allowed: {', '.join(POLICIES)}")
    sizes = [(c, m // c) for c in colours for m in sorted(set(memory)) if c > 0 and m > 0 and m % c == 0]
    if not sizes:
        raise BadInputError("no memory size is a multiple of a colour count: there is nothing to simulate")

    def require(header: dict[str, Any]) -> None:
        _require_exact(header, policies, sizes, colouring, page_bytes)

    rows = []
    with _simulations(policies, sizes, colouring, list(masks), seed, spill) as running:
        feed([one for one, _ in running], trace, page_bytes=page_bytes, require=require, report=report)
        for policy, (simulation, second) in zip(policies, running, strict=True):
            try:
                references, found = simulation.faults(second)
            except OSError as error:
                raise MachineError(f"OPT: {error.strerror} (errno {error.errno}); choose another --spill") from error
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
        raise BadInputError("the trace has no references")
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


@contextmanager
def _simulations(
    policies: Sequence[str],
    sizes: list[tuple[int, int]],
    colouring: str,
    masks: list[int],
    seed: int,
    spill: str | PathLike[str] | None,
) -> Iterator[list[tuple[Paging, str | None]]]:
    """Each policy's simulation, and for OPT the second file."""
    from pagelab._native import Paging

    with ExitStack() as files:
        made: list[tuple[Paging, str | None]] = []
        for policy in policies:
            try:
                if policy == "opt":
                    first, second = _file(files, spill), _file(files, spill)
                    made.append((Paging.optimal(colouring, masks, sizes, first), second))
                else:
                    made.append((Paging.memories(policy, colouring, masks, sizes, seed), None))
            except (ValueError, OverflowError) as error:
                raise BadInputError(str(error)) from error
        yield made


def _file(files: ExitStack, spill: str | PathLike[str] | None) -> str:
    """An unnamed file that lasts as long as ``files``, by a path that the native part can open."""
    try:
        file = files.enter_context(tempfile.TemporaryFile(dir=spill))  # noqa: SIM115 (the stack closes it)
    except OSError as error:
        raise MachineError(f"cannot spill to {spill or tempfile.gettempdir()}: {error.strerror}") from error
    return f"/proc/self/fd/{file.fileno()}"
