"""Page faults under LRU, for every memory size and many colour counts in one pass over a trace.

A memory of M frames with c colours is c lists of M/c frames (PAGING: Lynch and Flynn, "Paging performance with page
coloring", CSL-TR-91-492, 1991, section 2). docs/method/paging.md has the method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pagelab.errors import BadInputError
from pagelab.simulate.traces import Report, Trace, exact_from, feed, no_references

if TYPE_CHECKING:
    import polars as pl

PAPER_COLOURS = (1, 2, 4, 8, 16, 32, 64)
"""PAGING's colour counts."""
PAPER_MEMORY_MIB = (1, 2, 4, 8, 16, 32, 64)
"""PAGING's memory sizes."""


@dataclass(frozen=True)
class Curve:
    """The result of one pass for one colour count."""

    colours: int
    references: int
    cold: int
    """First uses: faults at every size."""
    reused: NDArray[np.uint64]
    """Shape (d,): references to a page with d other pages of its colour used since. If small memories did not matter
    (:attr:`Curves.exact_from`), those below their frames of a colour may be counted at 0."""
    filled: NDArray[np.uint64]
    """Shape (k,): pages used until, for the first time, k + 1 pages of one colour have been used."""

    def faults(self) -> NDArray[np.uint64]:
        """Shape (m,): faults with 0, 1, 2 … frames of each colour; the last is where only first uses fault.

        Too small below the memory from which the curve is exact (:attr:`Curves.exact_from`).
        """
        depth = int(np.max(np.nonzero(self.reused)[0], initial=-1)) + 1
        beyond = np.cumsum(self.reused[:depth][::-1], dtype=np.uint64)[::-1]
        return np.append(beyond, np.uint64(0)) + np.uint64(self.cold)


@dataclass(frozen=True)
class Curves:
    """All curves of one pass, ascending by colours."""

    curves: tuple[Curve, ...]
    header: dict[str, Any]
    """The trace file's header; empty for arrays."""
    exact_from: int = 1
    """The smallest memory, in pages, that the curves are exact for: more than one if the trace was reduced, or if no
    smaller memory was asked about."""

    @property
    def references(self) -> int:
        """References in the trace."""
        return self.curves[0].references

    @property
    def pages(self) -> int:
        """Different pages in the trace."""
        return self.curves[0].cold

    def faults(self, memory: Sequence[int] | None = None) -> pl.DataFrame:
        """Faults by memory size.

        ``memory``: sizes in pages, those that a colour count does not divide are left out for it; None: every size at
        which each colour has 1, 2, 3 … frames, up to the first where only first uses fault.

        Columns: policy, colours, memory_pages, references, faults, faults_per_million.
        """
        import polars as pl

        parts = []
        for curve in self.curves:
            faults = curve.faults()
            # The first exact size has a row, too.
            least = -(-self.exact_from // curve.colours)
            sizes = np.arange(1, max(len(faults), least + 1, 2), dtype=np.int64) * curve.colours
            if memory is not None:
                asked = np.array(sorted(set(memory)), dtype=np.int64)
                sizes = asked[(asked % curve.colours == 0) & (asked > 0)]
            exact = sizes[sizes >= self.exact_from]
            at = faults[np.minimum(exact // curve.colours, len(faults) - 1)]
            parts.append(
                pl.DataFrame(
                    {
                        "policy": pl.Series(["lru"] * len(exact), dtype=pl.String),
                        "colours": pl.Series(np.full(len(exact), curve.colours), dtype=pl.Int64),
                        "memory_pages": pl.Series(exact, dtype=pl.Int64),
                        "references": pl.Series(np.full(len(exact), curve.references), dtype=pl.UInt64),
                        "faults": pl.Series(at, dtype=pl.UInt64),
                    }
                )
            )
        return pl.concat(parts).with_columns(faults_per_million=pl.col("faults") / pl.col("references") * 1e6)

    def utilisation(self) -> pl.DataFrame:
        """Simulated effective memory utilisation: the pages in use when the frames of one colour are first all in use.

        For every number k of frames a colour up to the most pages that one colour has. Columns: colours,
        pages_per_colour (k), memory_pages (c·k), allocated, m_eff = allocated / memory_pages (PAGING, section 2).
        """
        import polars as pl

        parts = []
        for curve in self.curves:
            per_colour = np.arange(1, len(curve.filled) + 1, dtype=np.int64)
            parts.append(
                pl.DataFrame(
                    {
                        "colours": pl.Series(np.full(len(per_colour), curve.colours), dtype=pl.Int64),
                        "pages_per_colour": per_colour,
                        "memory_pages": per_colour * curve.colours,
                        "allocated": pl.Series(curve.filled, dtype=pl.Int64),
                    }
                )
            )
        return pl.concat(parts).with_columns(m_eff=pl.col("allocated") / pl.col("memory_pages"))


def coloring(text: str, where: str) -> tuple[str, list[int]]:
    """``modulo``, ``pid-hashed`` or ``xor:0x1041,0x2082``: the name and the masks. Raises :class:`BadInputError`."""
    name, _, rest = text.partition(":")
    try:
        return name, [int(mask, 0) for mask in rest.split(",")] if rest else []
    except ValueError as error:
        raise BadInputError(f"{where} {text}: masks are numbers, such as xor:0x1041,0x2082") from error


def memory_pages(
    sizes: Sequence[tuple[str, int]],
    page_bytes: int,
    counts: Sequence[int],
    names: tuple[str, str] = ("memory", "colors"),
) -> list[int]:
    """Memory sizes, given as written and in bytes, in pages. ``names``: of the settings, for errors.

    Raises :class:`BadInputError` for sizes of no whole number of pages, and for numbers of colours that divide none of
    the sizes: the results for either would all be missing.
    """
    from pagelab.machine.settings import size_name

    memory, colours = names
    found: list[int] = []
    for text, size in sizes:
        if size < page_bytes or size % page_bytes:
            raise BadInputError(
                f"{memory} {text}: {size} bytes are no whole number of pages of {page_bytes}; "
                f"the next that is: {memory} {size_name(max(1, -(-size // page_bytes)) * page_bytes)}"
            )
        if size // page_bytes in found:
            raise BadInputError(f"{memory}: {text} is named twice; name it once")
        found.append(size // page_bytes)
    for count in counts:
        if count < 1:
            raise BadInputError(f"{colours} {count}: there is at least 1 colour")
        if all(pages % count for pages in found):
            divided = size_name(-(-found[-1] // count) * count * page_bytes)
            raise BadInputError(
                f"{colours} {count}: {count} colours divide none of the memories of {memory} "
                f"{','.join(text for text, _ in sizes)} ({found[-1]} pages are the last); one that they divide: "
                f"{memory} {divided}"
            )
    return found


def curves(
    trace: Trace,
    colours: Sequence[int] = PAPER_COLOURS,
    *,
    colouring: str = "modulo",
    masks: Sequence[int] = (),
    page_bytes: int = 4096,
    smallest: int = 1,
    threads: int = 1,
    report: Report | None = None,
) -> Curves:
    """One pass over ``trace``: exact LRU faults for every memory size and each of ``colours``, and how memory fills.

    ``smallest``: the smallest memory, in pages, that matters. Most references of programs are to a few pages and hits
    in any larger memory, so that a pass takes less time; smaller memories are left out of the result.

    ``colouring``: "modulo" (virtual page number modulo colours, whatever the address space), "pid-hashed" (after
    every address space was shifted by a pseudo-random distance) or "xor" (bit i of the colour is the parity of the page
    number under ``masks[i]``; powers of two only). With more ``threads``, each takes segments of the trace: two need
    three times the memory of one (n: 2n - 1 times), and up to 512 MiB for runs that wait.

    Raises :class:`BadInputError` for colours or traces that cannot be simulated.
    """
    from pagelab._native import Paging

    if smallest < 1:
        raise BadInputError(f"smallest = {smallest}: the smallest memory has at least 1 page")
    try:
        stacks = Paging.stacks(colouring, list(masks), [int(count) for count in colours], int(smallest), threads)
    except (ValueError, OverflowError) as error:
        raise BadInputError(str(error)) from error

    def require(header: dict[str, Any]) -> None:
        exact_from(header, colours, colouring, page_bytes)

    header = feed([stacks], trace, page_bytes=page_bytes, require=require, report=report)
    found = tuple(
        Curve(count, references, cold, np.frombuffer(reused, np.uint64), np.frombuffer(filled, np.uint64))
        for count, references, cold, reused, filled in stacks.curves()
    )
    if found[0].references == 0:
        raise no_references(trace)
    return Curves(found, header, max(smallest, exact_from(header, colours, colouring, page_bytes)))


def paging(
    trace: Trace,
    colours: Sequence[int] = PAPER_COLOURS,
    *,
    memory: Sequence[int] | None = None,
    colouring: str = "modulo",
    masks: Sequence[int] = (),
    page_bytes: int = 4096,
    threads: int = 1,
    report: Report | None = None,
) -> pl.DataFrame:
    """Page faults of ``trace`` for each colour count and memory size: :func:`curves`, then :meth:`Curves.faults`."""
    found = curves(
        trace,
        colours,
        colouring=colouring,
        masks=masks,
        page_bytes=page_bytes,
        smallest=smallest_of(memory),
        threads=threads,
        report=report,
    )
    return found.faults(memory)


def smallest_of(memory: Sequence[int] | None) -> int:
    """The smallest of these sizes in pages; 1 for None, which stands for all sizes."""
    return min((int(pages) for pages in memory or () if pages > 0), default=1)
