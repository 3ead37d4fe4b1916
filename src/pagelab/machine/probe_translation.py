"""Probes address translation with ``pagelab-workload page-chase``: TLB levels, walks, the host's page size."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from .. import foreign_files, paths
from ..errors import MachineError, PagelabError
from .colours.store import machine_hash, place, write
from .probe_colours import _available_bytes, _on_one_cpu
from .provenance import pagelab_version, provenance
from .sysfs import Tree
from .translation import Chases, Costs, Cycles, HostPages, Kind, Levels, TranslationFile, WalkCost, cycles, steps
from .virtual import virtualisation

ROUNDS = 15
NAME = "translation.json"
_BYTES = 512 << 20
_LARGEST_SHARE = 8
"""Memory of each page size is at most 1 / this of the available memory."""
_SMALL_PAGES = (8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 112, 128, 160, 192, 256, 320, 384, 512, 640, 768, 896, 1024)
_MORE_PAGES = (1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096, 5120, 6144, 8192, 12288, 16384, 32768, 65536, 131072)
_CHAINS = (1, 2, 4, 8, 16)
_CHAIN_PAGES = 6144
"""More pages than any second-level TLB holds; yet a chain so short that no other program empties the caches."""

Measure = Callable[[Sequence[str]], Chases]


def arguments(*, rounds: int, seed: int, available_bytes: int) -> list[str]:
    """Arguments of ``page-chase``. Raises :class:`MachineError` if there is too little memory."""
    bytes_ = min(_BYTES, available_bytes // _LARGEST_SHARE) >> 21 << 21
    if bytes_ < 64 << 20:
        raise MachineError(
            f"cannot probe translation: {available_bytes >> 20} MiB of memory are available, 512 are needed; "
            "run: free -m"
        )
    lengths = [length for length in (*_SMALL_PAGES, *_MORE_PAGES) if length * 4096 <= bytes_]
    large = [length for length in lengths if length << 21 <= bytes_]
    named: dict[str, object] = {
        "bytes": bytes_,
        "pages": ",".join(map(str, lengths)),
        "large-pages": ",".join(map(str, large)),
        "chains": ",".join(map(str, _CHAINS)),
        "chain-pages": min(_CHAIN_PAGES, lengths[-1]),
        "rounds": rounds,
        "seed": seed,
    }
    return [f"--{name}={value}" for name, value in named.items()]


def probe(
    *, rounds: int = ROUNDS, seed: int = 1, measure: Measure | None = None, virtual: str | None = None
) -> TranslationFile:
    """Measures (half a minute, one CPU) and judges address translation. ``measure`` and ``virtual`` are for tests.

    Raises :class:`MachineError` if there is too little memory, :class:`PagelabError` if the measurement fails.
    """
    asked = arguments(rounds=rounds, seed=seed, available_bytes=_available_bytes())
    measured = (measure or chase)(asked)
    kind = virtualisation(Tree.from_environment()).kind if virtual is None else virtual
    known = provenance()
    host, levels, at_once = judge(measured, virtual=kind != "none")
    return TranslationFile(
        levels=levels,
        cycle_ns=round(float(np.median(measured.cycle_ns)), 5),
        host_pages=host,
        walks_at_once=at_once,
        rounds=measured.rounds,
        seed=seed,
        cpu=known["cpu"]["model_name"],
        virtualisation=kind,
        host=known["host"],
        machine=machine_hash(),
        boot_id=known["boot_id"],
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        pagelab=pagelab_version(),
    )


def chase(asked: Sequence[str]) -> Chases:
    """Runs ``page-chase`` on one CPU; returns its output."""
    command = [str(paths.workload()), "page-chase", *asked]
    with _on_one_cpu():
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = done.stderr.strip().removeprefix("pagelab-workload: ")
        raise PagelabError(f"cannot probe translation: {said or f'{command[0]} ended with {done.returncode}'}")
    return Chases.model_validate(json.loads(done.stdout))


class _Table:
    """Cycles per load, by kind, length and round."""

    def __init__(self, measured: Chases) -> None:
        self.rounds = measured.rounds
        cycle = measured.cycle_ns
        self._one: dict[tuple[Kind, int, int], dict[int, float]] = {}
        for one in measured.samples:
            cell = self._one.setdefault((one.kind, one.pages, one.chains), {})
            cell.setdefault(one.round, one.ns_per_load / cycle[one.round])

    def lengths(self, kind: Kind) -> list[int]:
        return sorted({pages for known, pages, chains in self._one if known == kind and chains == 1})

    def column(self, kind: Kind, pages: int, chains: int = 1) -> Costs | None:
        """One value per round; None if some round has none."""
        cell = self._one.get((kind, pages, chains), {})
        return np.array([cell[r] for r in range(self.rounds)]) if len(cell) == self.rounds else None

    def beyond(self, kind: Kind, reference: Kind) -> tuple[list[int], Costs]:
        """The lengths that both have, and the cost of ``kind`` beyond ``reference``, shape (rounds, lengths)."""
        columns = {
            pages: own - other
            for pages in self.lengths(kind)
            if (own := self.column(kind, pages)) is not None and (other := self.column(reference, pages)) is not None
        }
        lengths = sorted(columns)
        return lengths, np.column_stack([columns[pages] for pages in lengths]) if lengths else np.empty((0, 0))


def judge(measured: Chases, *, virtual: bool) -> tuple[HostPages, list[Levels], Cycles | None]:
    """Judges the host's page size, the levels for 4K and 2M pages, and the least number of simultaneous walks.

    ``measured`` is in nanoseconds; results are in cycles of each round's clock, measured by chained additions.
    """
    table = _Table(measured)
    host: HostPages = _host_pages(table) if virtual else "none"
    # The same lines in larger pages use the same cache sets. They are no reference if the host splits these pages, as
    # they are then translated in small pieces, too.
    larger: Kind | None = next((kind for kind in _IN_LARGER if table.lengths(kind)), None)
    reference: Kind = larger if larger is not None and host in ("none", "2M or larger") else "dense"
    levels = [_levels(table, "4K", reference)]
    if table.lengths("2M"):
        levels.append(_levels(table, "2M", "2M in 1G" if table.lengths("2M in 1G") else "dense"))
    return host, levels, _walks_at_once(table)


_IN_LARGER: tuple[Kind, ...] = ("4K in 1G", "4K in 2M")


def _levels(table: _Table, page: Kind, reference: Kind) -> Levels:
    lengths, costs = table.beyond(page, reference)
    found = steps(lengths, costs) if lengths else []
    beyond = found[1].first_beyond if len(found) > 1 else None
    walks = [
        WalkCost(pages=length, table_bytes=8 * length, cycles=cycles(costs[:, at]))
        for at, length in enumerate(lengths)
        if beyond is not None and length >= beyond
    ]
    return Levels(
        page="4K" if page == "4K" else "2M",
        reference=reference,
        longest=lengths[-1] if lengths else 0,
        steps=found,
        walks=walks,
    )


def _host_pages(table: _Table) -> HostPages:
    """The host backs guest pages of 2 MiB by 4 KiB pages if their lines need as many TLB entries as 4 KiB pages.

    Judged at lengths beyond the first level for 4 KiB pages, with all lines in one 2 MiB page: up to 512 pages.
    """
    lengths, costs = table.beyond("4K", "dense")
    _, same = table.beyond("4K in 2M", "dense")
    short = [at for at, length in enumerate(lengths) if length <= 512]
    if not short or same.shape != costs.shape:
        return "unknown"
    found = steps([lengths[at] for at in short], costs[:, short])
    if not found:
        return "unknown"
    after = [at for at in short if lengths[at] >= found[0].first_beyond]
    penalty = np.median(costs[:, after])
    share = np.median(same[:, after], axis=1) / penalty
    split = float(np.mean(share > 0.5))
    return "4K" if split > 0.9 else "2M or larger" if split < 0.1 else "both"


def _walks_at_once(table: _Table) -> Cycles | None:
    """Average number of simultaneous walks while several chains are followed, by Little's law: the cost of one walk
    over the time between loads. A lower bound: walks wait for each other, and loads may wait for something else."""
    sizes = sorted({pages for kind, pages, chains in table._one if kind == "4K" and chains > 1})
    best: Costs | None = None
    for pages in sizes:
        alone, dense = table.column("4K", pages), table.column("dense", pages)
        for chains in _CHAINS[1:]:
            together = table.column("4K", pages, chains)
            if alone is not None and dense is not None and together is not None:
                ratio = (alone - dense) / together
                best = ratio if best is None or np.median(ratio) > np.median(best) else best
    return None if best is None else cycles(best)


def store(found: TranslationFile) -> tuple[Path, TranslationFile | None]:
    """Writes the result (to a temporary file, then renamed); returns its path and this boot's previous result."""
    path = place(NAME)
    before = read(path)
    if before is not None and (before.machine, before.boot_id) != (found.machine, found.boot_id):
        before = None
    write(path, found.model_dump_json(by_alias=True, indent=1), "the measurement", "--probe-translation")
    return path, before


def read(path: Path) -> TranslationFile | None:
    """Reads a stored result; None if there is none, or none that this version can read."""
    try:
        return TranslationFile.model_validate_json(foreign_files.read(path))
    except (OSError, ValueError):
        return None


def changes(before: TranslationFile, now: TranslationFile) -> list[str]:
    """Sentences on values that differ by more than both intervals: the host may have moved machine or memory."""
    told = []
    if before.host_pages != now.host_pages:
        told.append(f"the host's pages: {before.host_pages}, now {now.host_pages}")
    for old, new in zip(before.levels, now.levels, strict=False):
        for number, (one, other) in enumerate(zip(old.steps, new.steps, strict=False)):
            if one.high < other.low or other.high < one.low:
                told.append(
                    f"step {number + 1} of {new.page} pages: {one.low}-{one.high}, now {other.low}-{other.high}"
                )
        walks = {walk.pages: walk.cycles for walk in old.walks}
        for walk in new.walks:
            was = walks.get(walk.pages)
            if was is not None and _apart(was, walk.cycles):
                told.append(f"a walk at {walk.pages} pages: {was.median:.0f} cycles, now {walk.cycles.median:.0f}")
    return told


def _apart(one: Cycles, other: Cycles) -> bool:
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return False
    return one.high < other.low or other.high < one.low
