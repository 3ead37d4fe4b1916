"""Makes the machine description: page sizes, switches, pools, caches, colours, CPUs and nodes, as plain data.

``crates/policy`` (type ``Machine``) receives it as JSON and validates policies against it; every record contains it.
Values that cannot be read are null or left out, never guessed.
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import Any, NamedTuple

from ..errors import BadInputError
from ..sizes import size_bytes
from .sysfs import Tree

SCHEMA = "pagelab.machine/1"
_THP = "/sys/kernel/mm/transparent_hugepage"
_HUGETLB = "/sys/kernel/mm/hugepages"
_CPU = "/sys/devices/system/cpu"
_NODE = "/sys/devices/system/node"
_BALLOONS = "/sys/bus/virtio/drivers/virtio_balloon"
_REPORTING = 5
"""Feature number of VIRTIO_BALLOON_F_REPORTING (virtio 1.2, section 5.5.3)."""


class Cache(NamedTuple):
    """One kind of cache; ``shared_cpus`` lists the CPUs of each instance of it.

    ``colours`` = size / ways / base page (ALLOC: pages of different colours never compete for a set). This is the
    nominal number: a last-level cache that hashes addresses over slices has no such colours.
    """

    level: int
    kind: str
    size_bytes: int
    ways: int | None
    line_bytes: int | None
    sets: int | None
    colours: int | None
    shared_cpus: list[list[int]]


def describe(tree: Tree | None = None) -> dict[str, Any]:
    """Describes this machine. Geometry is read once, switches and pools at every call (about 1 ms)."""
    tree = tree or Tree.from_environment()
    base = os.sysconf("SC_PAGE_SIZE")
    geometry = _geometry(str(tree.root), base)
    pmd = _pmd_bytes(tree, base)
    mthp = _mthp(tree, pmd)
    pools = _hugetlb(tree)
    sizes = {base, *(size["bytes"] for size in mthp), *(pool["page_bytes"] for pool in pools)}
    if pmd is not None:
        sizes.add(pmd)
    return {
        "schema": SCHEMA,
        "architecture": os.uname().machine,
        "page_sizes_bytes": sorted(sizes),
        "base_page_bytes": base,
        "thp_bytes": pmd,
        "mthp_bytes": [size["bytes"] for size in mthp],
        "mthp_switchable": any(_writable(tree, size["switch"]) for size in mthp),
        "free_page_reporting": _reports_free_pages(tree),
        "max_map_count": tree.number("/proc/sys/vm/max_map_count"),
        "thp": {
            **{name: tree.get(f"{_THP}/{name}") for name in ("enabled", "defrag", "shmem_enabled")},
            "switch": tree.get(f"{_THP}/hugepages-{pmd // 1024}kB/enabled") if pmd else None,
        },
        "mthp": mthp,
        "hugetlb": pools,
        **geometry,
        "colour_verdict": _colour_verdict(tree, geometry["caches"]),
    }


def _reports_free_pages(tree: Tree) -> bool:
    """Whether a virtio balloon tells the host which pages are free (VIRTIO_BALLOON_F_REPORTING)."""
    features = (tree.get(f"{_BALLOONS}/{device}/features") for device in tree.names(_BALLOONS))
    return any(bits is not None and bits[_REPORTING : _REPORTING + 1] == "1" for bits in features)


def _colour_verdict(tree: Tree, caches: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The verdict of ``doctor --probe-colours``; None if it is missing or outdated."""
    if str(tree.root) != "/":
        return None  # a recorded or invented machine, to which this machine's verdict does not apply
    from .colours.store import stored

    return stored(caches, tree)


def _pmd_bytes(tree: Tree, base: int) -> int | None:
    """Bytes of a PMD-mapped huge page. Without /sys, /proc/meminfo still shows whether the kernel has any. Their size
    follows from a page table of ``base`` bytes with ``base / 8`` entries, on every architecture that has them.
    """
    pmd_bytes = tree.number(f"{_THP}/hpage_pmd_size")
    if (
        pmd_bytes is None
        and not tree.exists("/sys/kernel/mm")
        and "AnonHugePages:" in (tree.get("/proc/meminfo") or "")
    ):
        return base * base // 8
    return pmd_bytes


def _mthp(tree: Tree, pmd: int | None) -> list[dict[str, Any]]:
    """Sizes below the PMD size that the kernel offers for anonymous or shared memory, with their switches."""
    found = []
    for size, directory in _sized(tree, _THP):
        if pmd is not None and size >= pmd:
            continue
        switch = f"{directory}/enabled"
        enabled = tree.get(switch)
        shmem = tree.get(f"{directory}/shmem_enabled")
        if enabled is not None:
            found.append({"bytes": size, "enabled": enabled, "shmem_enabled": shmem, "switch": switch})
    return found


def _hugetlb(tree: Tree) -> list[dict[str, Any]]:
    files = {
        "total_pages": "nr_hugepages",
        "free_pages": "free_hugepages",
        "reserved_pages": "resv_hugepages",
        "surplus_pages": "surplus_hugepages",
        "overcommit_pages": "nr_overcommit_hugepages",
    }
    pools = []
    for size, directory in _sized(tree, _HUGETLB):
        pool = {key: tree.number(f"{directory}/{file}") for key, file in files.items()}
        pools.append({"page_bytes": size, "pages": _obtainable(pool), **pool})
    return pools


def _obtainable(pool: dict[str, int | None]) -> int | None:
    """Pages of a pool that a new mapping can get: free and unreserved ones, plus the rest of the overcommit limit.

    A kernel that has lost count of its reservations tells a number just below 2⁶⁴ and gives pages as if it were zero.
    """
    free, reserved = pool["free_pages"], pool["reserved_pages"]
    if free is None or reserved is None:
        return None
    reserved = reserved if reserved < 2**63 else 0
    extra = (pool["overcommit_pages"] or 0) - (pool["surplus_pages"] or 0)
    return max(0, free - reserved) + max(0, extra)


def _writable(tree: Tree, name: str) -> bool:
    return os.access(tree.path(name), os.W_OK, effective_ids=True)


def _sized(tree: Tree, parent: str) -> list[tuple[int, str]]:
    """Directories ``hugepages-<n>kB`` below ``parent`` with their sizes in bytes, ascending."""
    found = []
    for name in tree.names(parent):
        kib = name.removeprefix("hugepages-").removesuffix("kB")
        if name.startswith("hugepages-") and kib.isdigit():
            found.append((int(kib) * 1024, f"{parent}/{name}"))
    return sorted(found)


@cache
def _geometry(root: str, base_page_bytes: int) -> dict[str, Any]:
    """Properties that do not change while pagelab runs (except by CPU hot-plug)."""
    tree = Tree(root)
    online = parse_list(tree.get(f"{_CPU}/online")) or sorted(os.sched_getaffinity(0))
    caches = _caches(tree, online, base_page_bytes)
    return {
        "cache": _last_level(caches),
        "caches": [entry._asdict() for entry in caches],
        "cpus": online,
        "nodes": _nodes(tree),
    }


def _nodes(tree: Tree) -> list[dict[str, Any]]:
    nodes = []
    present = _present_bytes(tree)
    for number in parse_list(tree.get(f"{_NODE}/online")):
        directory = f"{_NODE}/node{number}"
        nodes.append(
            {
                "node": number,
                "cpus": parse_list(tree.get(f"{directory}/cpulist")),
                "memory_bytes": present.get(number) or _node_memory(tree, directory),
            }
        )
    return nodes


def _present_bytes(tree: Tree) -> dict[int, int]:
    """Memory of each node: the pages present in its zones.

    The node's MemTotal is not used: it counts only pages that the buddy allocator manages at the moment, without those
    that the kernel reserved or that a balloon or the hypervisor took away. On virtual machines whose memory was plugged
    in late it was a third of the value in ``/proc/meminfo``.
    """
    present: dict[int, int] = {}
    # "Node 0, zone Normal pages free … present 5505024 …", zone after zone
    for node, pages in re.findall(r"Node (\d+), zone(?:(?!Node ).)*? present (\d+)", tree.get("/proc/zoneinfo") or ""):
        present[int(node)] = present.get(int(node), 0) + int(pages) * os.sysconf("SC_PAGE_SIZE")
    return present


def _node_memory(tree: Tree, directory: str) -> int | None:
    words = (tree.get(f"{directory}/meminfo") or "").split()
    # "Node 0 MemTotal: 24617544 kB"
    if "MemTotal:" not in words:
        return None
    return int(words[words.index("MemTotal:") + 1]) * 1024


def _caches(tree: Tree, cpus: list[int], base_page_bytes: int) -> list[Cache]:
    """Every kind of cache once. CPUs of an instance that was already read are skipped: that is cheap on large hosts."""
    kinds: dict[tuple[Any, ...], list[list[int]]] = {}
    for index in _cache_indices(tree, cpus):
        covered: set[int] = set()
        for cpu in cpus:
            if cpu in covered:
                continue
            directory = f"{_CPU}/cpu{cpu}/cache/{index}"
            key = _cache_key(tree, directory)
            shared = parse_list(tree.get(f"{directory}/shared_cpu_list")) or [cpu]
            covered.update(shared)
            if key is not None:
                kinds.setdefault(key, []).append(shared)
    return [_cache(key, shared, base_page_bytes) for key, shared in sorted(kinds.items(), key=_by_level)]


def _last_level(caches: list[Cache]) -> dict[str, int] | None:
    """The cache that defines colours by default: the last level with a known shape."""
    for entry in reversed(caches):
        if entry.kind != "instruction" and entry.line_bytes and entry.sets and entry.ways:
            return {"line_bytes": entry.line_bytes, "sets": entry.sets, "ways": entry.ways}
    return None


def _cache_indices(tree: Tree, cpus: list[int]) -> list[str]:
    indices = {name for cpu in cpus[:1] + cpus[-1:] for name in tree.names(f"{_CPU}/cpu{cpu}/cache")}
    return sorted(name for name in indices if name.startswith("index"))


def _cache_key(tree: Tree, directory: str) -> tuple[Any, ...] | None:
    level = tree.number(f"{directory}/level")
    kind = tree.get(f"{directory}/type")
    size = _size_bytes(tree.get(f"{directory}/size"))
    if level is None or kind is None or size is None:
        return None
    ways = tree.number(f"{directory}/ways_of_associativity")
    line = tree.number(f"{directory}/coherency_line_size")
    sets = tree.number(f"{directory}/number_of_sets")
    # The kernel writes 0 if the firmware does not report a value.
    return level, kind.lower(), size, ways or None, line or None, sets or None


def _by_level(item: tuple[tuple[Any, ...], list[list[int]]]) -> tuple[Any, ...]:
    return tuple(str(part) for part in item[0])


def _cache(key: tuple[Any, ...], shared: list[list[int]], base_page_bytes: int) -> Cache:
    level, kind, size, ways, line, sets = key
    colours = None if ways is None else max(1, size // ways // base_page_bytes)
    return Cache(level, kind, size, ways, line, sets, colours, shared)


def _size_bytes(text: str | None) -> int | None:
    """``32K`` or ``1M`` as bytes."""
    try:
        return size_bytes(text, "cache size")
    except BadInputError:
        return None


def parse_list(text: str | None) -> list[int]:
    """Numbers of a text in the kernel's list format, ``0-3,8``; empty for no text or another format."""
    numbers: list[int] = []
    for part in (text or "").split(","):
        first, dash, last = part.strip().partition("-")
        if first.isdigit() and (not dash or last.isdigit()):
            numbers.extend(range(int(first), int(last if dash else first) + 1))
    return numbers
