"""Placement and page sizes of a simulated program's memory, in the policy language of real runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from .. import policy as policies
from ..errors import BadInputError
from ..machine.sysfs import Tree
from ..trace.pools import Pool
from .history import PAGE_BYTES
from .history import History as History

HEAP_POOL = 0x6600_0000_0000
ANONYMOUS_POOL = 0x6700_0000_0000
POOL_BYTES = 1 << 40
"""Where pagelab puts heap and anonymous memory under a policy, and how far offsets reach (docs/policy.md)."""
POOLS = tuple(
    Pool(memory, base, base + POOL_BYTES)
    for memory, base in (("heap", HEAP_POOL), ("anon", ANONYMOUS_POOL), ("arenas", ANONYMOUS_POOL))
)
"""Where rules for kinds of memory find it in a trace without pools in its header."""
_BASE = 12
FRAME_BYTES, SHARED_FRAME_BYTES = 14, 2
"""Bytes that a frame of a simulated machine takes, and more of them for each execution on it (measured: 13 and 1.5 of
64 GiB)."""


@dataclass(frozen=True)
class Region:
    """Memory of one kind, as policies name kinds."""

    start: int
    end: int
    kind: str


@dataclass(frozen=True)
class Placement:
    """One way to place pages; ``name`` is its label in frames and charts."""

    name: str
    policy: policies.Policy
    regions: tuple[Region, ...] = ()
    """The meaning of kinds of memory in rules; without it, rules can name only ranges and pagelab's pools."""
    pools: tuple[Pool, ...] = POOLS
    """Heap, anonymous mappings and arenas in the trace."""
    unused: frozenset[str] = frozenset()
    """Kinds of memory of which the program has no page: a mosaic over one of them and another is the other's alone."""

    def native(self, colours: int) -> dict[str, Any]:
        """The input of the native part. ``colours``: of the cache, if the policy does not set them.

        Raises :class:`BadInputError` for rules that cannot be applied to addresses alone.
        """
        if any("frames" in rule.names for rule in self.policy.rules):
            raise BadInputError(f"{self.name}: rules for frames are not simulated; give frames as the policy's default")
        extents, otherwise = self.extents()
        return {
            "frames": self.policy.document["frames"],
            "colours": colours,
            "extents": extents,
            "otherwise": otherwise,
        }

    def of_trace(self, pools: Sequence[Pool]) -> Placement:
        """This placement for a trace with these pools; unchanged if the trace has none."""
        return replace(self, pools=tuple(pools)) if pools else self

    def extents(self) -> tuple[list[tuple[int, int, int]], int]:
        """The result of :func:`page_sizes` for this placement."""
        return page_sizes(self.policy, self.regions, self.pools, self.unused)

    def claims(self) -> list[tuple[int, int, str]]:
        """Start, end and name of the memory in its rules or its mosaic; empty if all memory has one page size."""
        rules = [rule for rule in self.policy.rules if "pages" in rule.names]
        named = [(*rule.range, "range") for rule in rules if rule.range is not None]
        wanted = [rule.memory for rule in rules if rule.range is None]
        if isinstance(self.policy.pages, policies.Mosaic):
            wanted.append(("heap", "anon", "arenas"))
        for memory in wanted:
            named += [(one.start, one.end, one.kind) for one in self.regions if _covers(memory, one.kind)]
            named += [(one.start, one.end, one.memory) for one in self.pools if _covers(memory, one.memory)]
        return named


What = str | Path | policies.Policy | Placement


@dataclass(frozen=True)
class Design:
    """Every placement on every machine; each seed draws one machine from the history."""

    placements: tuple[Placement, ...]
    seeds: tuple[int, ...]
    history: History

    def native(self, colours: int) -> str:
        """JSON for the native part."""
        placements = [one.native(colours) for one in self.placements]
        return json.dumps({"history": asdict(self.history), "placements": placements, "seeds": self.seeds})

    def require_memory(self) -> None:
        """Raises :class:`BadInputError` if the simulated machines take more memory than there is here.

        A frame of a seed's machine takes :data:`FRAME_BYTES`, which the executions on it share in the main.
        """
        fields = (line.split() for line in Tree().text("/proc/meminfo").splitlines())
        available = next((int(field[1]) << 10 for field in fields if field[0] == "MemAvailable:"), None)
        size = self.history.memory_bytes
        each = FRAME_BYTES + SHARED_FRAME_BYTES * len(self.placements)
        needed = size // PAGE_BYTES * each * len(self.seeds)
        if available is not None and needed > available:
            machines = f"{len(self.seeds)} simulated machines" if len(self.seeds) > 1 else "a simulated machine"
            raise BadInputError(
                f"{machines} of {size >> 20:,} MiB would take {needed >> 20:,} MiB of memory here, and "
                f"{available >> 20:,} MiB are available; simulate smaller ones, or fewer seeds or placements at once"
            )

    def of_trace(self, pools: Sequence[Pool]) -> Design:
        """This design for a trace with these pools; unchanged if the trace has none."""
        return replace(self, placements=tuple(one.of_trace(pools) for one in self.placements))

    def executions(self) -> list[tuple[Placement, int]]:
        """Placement and seed of each execution, in the order of the native part's outcomes."""
        return [(one, seed) for seed in self.seeds for one in self.placements]


def design(placements: What | Sequence[What], seeds: int | Iterable[int], history: History | None = None) -> Design:
    """The simulated placements. ``seeds``: a number n means 0 … n-1.

    Raises :class:`BadInputError` where there is none, or two have the same name.
    """
    if isinstance(placements, str | Path | policies.Policy | Placement):
        placements = [placements]
    named = tuple(placement(one) for one in placements)
    drawn = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not named or not drawn:
        raise BadInputError("nothing to simulate: at least one placement and one seed")
    names = [one.name for one in named]
    if len(set(names)) < len(names):
        raise BadInputError(f"placements have the same name: {', '.join(names)}")
    return Design(named, drawn, history or History())


def placement(
    what: What,
    *,
    regions: Iterable[Region] = (),
) -> Placement:
    """A placement from a word of the policy language (``kernel``, ``page-coloring``, ``bin-hopping:seed=1``,
    ``exact:map=FILE`` …), the path of a policy's TOML file or of a Mosalloc layout (CSV), or a policy.

    Raises :class:`~pagelab.policy.PolicyError`.
    """
    if isinstance(what, Placement):
        return what
    if isinstance(what, policies.Policy):
        return Placement(what.name, what, tuple(regions))
    text = str(what)
    if text.endswith((".toml", ".csv")):
        loaded = policies.load(text, _machine())
        return Placement(loaded.name, loaded, tuple(regions))
    return Placement(text, policies.from_flags(policies.Flags(frames=[text]), _machine()), tuple(regions))


def placement_of_pages(text: str, *, regions: Iterable[Region] = ()) -> Placement:
    """A placement from a value of ``--pages``: a size, or a rule such as ``heap=0-64M:2M``.

    Raises :class:`~pagelab.policy.PolicyError`.
    """
    parsed = policies.from_flags(policies.Flags(pages=[text]), _machine())
    return Placement(text, parsed, tuple(regions))


def _machine() -> Mapping[str, Any]:
    """A machine with all capabilities, since simulated hardware need not exist here."""
    from .. import _native

    machine: dict[str, Any] = json.loads(_native.generic_machine())
    return machine


def page_sizes(
    policy: policies.Policy,
    regions: Sequence[Region] = (),
    pools: Sequence[Pool] = POOLS,
    unused: frozenset[str] = frozenset(),
) -> tuple[list[tuple[int, int, int]], int]:
    """Extents (start, end, binary logarithm of the page size), and the logarithm for addresses outside of them.

    The first rule that matches decides, as in a run. A region whose ends are no multiples of the size has 4K pages
    there.

    Raises :class:`BadInputError` for rules about what a trace does not tell, and for a mosaic over kinds of memory that
    a run would have in one pool and the trace has in two, unless only one of them is used (``unused``: the others).
    """
    shared = [pool for pool in pools if pool.memory not in unused]
    extents: list[tuple[int, int, int]] = []
    taken: list[tuple[int, int]] = []

    def claim(start: int, end: int, pages: policies.Pages, pool: int | None) -> None:
        for low, high in _free(start, end, taken):
            extents.extend(_cut(low, high, pages, start if pool is None else pool))
        taken.append((start, end))

    for rule in policy.rules:
        if "pages" not in rule.names:
            continue
        if rule.at_least_bytes:
            raise BadInputError(f"{policy.name}: at_least needs mappings, which a trace lacks; name a range")
        if rule.range is not None:
            claim(*rule.range, rule.pages, None)
            continue
        if isinstance(rule.pages, policies.Mosaic):
            _one_pool(rule.memory, shared, policy.name)
        for start, end, pool in _kinds(rule.memory, regions, pools, policy.name):
            claim(start, end, rule.pages, pool)
    if isinstance(policy.pages, policies.Mosaic):
        _one_pool(("all",), shared, policy.name)
        for start, end, pool in _kinds(("heap", "anon", "arenas"), regions, pools, policy.name):
            claim(start, end, policy.pages, pool)
        return sorted(extents), _BASE
    return sorted(extents), _bits(policy.pages)


def _covers(memory: Sequence[str], kind: str) -> bool:
    return "all" in memory or kind in memory


def _one_pool(memory: Sequence[str], pools: Sequence[Pool], name: str) -> None:
    """Refuses a mosaic over two pools of anonymous memory: its offsets count in one pool."""
    both = {pool.start for pool in pools if pool.memory != "heap" and _covers(memory, pool.memory)}
    if len(both) > 1:
        raise BadInputError(
            f"{name}: its mosaic is for anon and arenas in one pool, and the trace has each in its own; write a mosaic "
            "for each, or capture a trace of this policy: pagelab trace --pools --policy FILE -- CMD"
        )


def _kinds(
    memory: Sequence[str], regions: Sequence[Region], pools: Sequence[Pool], name: str
) -> list[tuple[int, int, int]]:
    """Start, end, and the origin of offsets, of the memory of these kinds."""
    known = [(region.start, region.end, region.start) for region in regions if _covers(memory, region.kind)]
    known += [(pool.start, pool.end, pool.start) for pool in pools if _covers(memory, pool.memory)]
    if not known:
        kinds = ", ".join(memory)
        raise BadInputError(f"{name}: no addresses are known for {kinds}; give --regions MAP.json (pagelab map --json)")
    return known


def _free(start: int, end: int, taken: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The parts of a range that no earlier rule has taken."""
    parts = [(start, end)]
    for low, high in taken:
        parts = [
            piece
            for first, last in parts
            for piece in ((first, min(last, low)), (max(first, high), last))
            if piece[0] < piece[1]
        ]
    return parts


def _cut(start: int, end: int, pages: policies.Pages, origin: int) -> list[tuple[int, int, int]]:
    if not isinstance(pages, policies.Mosaic):
        return _whole(start, end, _bits(pages))
    cut: list[tuple[int, int, int]] = []
    at = start
    for interval in pages.intervals:
        low, high = max(start, origin + interval.start_bytes), min(end, origin + interval.end_bytes)
        if low < high:
            cut += _whole(at, low, _bits(pages.otherwise_bytes)) + _whole(low, high, _bits(interval.page_bytes))
            at = high
    return cut + _whole(at, end, _bits(pages.otherwise_bytes))


def _whole(start: int, end: int, bits: int) -> list[tuple[int, int, int]]:
    """Divides a range into whole pages of the size and base pages at both ends."""
    size = 1 << bits
    low, high = -(-start // size) * size, end // size * size
    if low >= high:
        low = high = start
    parts = ((start, low, _BASE), (low, high, bits), (high, end, _BASE))
    return [(first >> _BASE << _BASE, -(-last // 4096) * 4096, own) for first, last, own in parts if first < last]


def _bits(page_bytes: policies.Pages) -> int:
    """Binary logarithm of the page size; the kernel's choice counts as base pages."""
    return _BASE if page_bytes is None or isinstance(page_bytes, policies.Mosaic) else page_bytes.bit_length() - 1


def regions_of_map(path: Path) -> list[Region]:
    """The regions of ``pagelab map --json``. Raises :class:`BadInputError`."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return [_region(one) for one in document["regions"]]
    except OSError as error:
        raise BadInputError(f"cannot read {path}: {error.strerror} (errno {error.errno})") from error
    except (ValueError, KeyError, TypeError) as error:
        raise BadInputError(f"{path}: not the output of pagelab map --json ({error})") from error


def _region(one: Mapping[str, Any]) -> Region:
    start, end = (one[key] if isinstance(one[key], int) else int(one[key], 16) for key in ("start", "end"))
    return Region(start, end, str(one["kind"]))
