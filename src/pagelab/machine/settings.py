"""The settings ``pagelab doctor --fix`` knows: names, files and allowed values, as data."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pagelab.errors import BadInputError, MachineError

from .describe import describe
from .sysfs import Tree

_THP = "/sys/kernel/mm/transparent_hugepage"
_HUGETLB = "/sys/kernel/mm/hugepages"
_VM = "/proc/sys/vm"
_KERNEL = "/proc/sys/kernel"
_BDI = "/sys/class/bdi"
_CPUFREQ = "/sys/devices/system/cpu/cpufreq"


@dataclass(frozen=True)
class Change:
    """One setting file to be written; a key may need several."""

    key: str
    path: str
    value: str


@dataclass(frozen=True)
class Setting:
    """A setting with one file. Its value is one of ``words``; if these are empty, a whole number ``low`` … ``high``."""

    key: str
    path: str
    why: str
    words: tuple[str, ...] = ()
    low: int = 0
    high: int = 2**31 - 1

    @property
    def values(self) -> str:
        """The allowed values in words."""
        return "|".join(self.words) if self.words else f"{self.low}…{self.high}"


_THP_WORDS = ("always", "madvise", "never")
_SIZED_WORDS = ("always", "inherit", "madvise", "never")

FIXED = (
    Setting("thp", f"{_THP}/enabled", "which memory may get transparent huge pages", _THP_WORDS),
    Setting(
        "thp-defrag",
        f"{_THP}/defrag",
        "how hard a page fault tries to make a huge page",
        ("always", "defer", "defer+madvise", "madvise", "never"),
    ),
    Setting(
        "thp-shmem",
        f"{_THP}/shmem_enabled",
        "huge pages in shared memory and tmpfs",
        ("always", "within_size", "advise", "never", "deny", "force"),
    ),
    Setting("perf_event_paranoid", f"{_KERNEL}/perf_event_paranoid", "who may count events", low=-1, high=4),
    Setting("aslr", f"{_KERNEL}/randomize_va_space", "address space randomisation, machine-wide", high=2),
    Setting(
        "compact_unevictable_allowed",
        f"{_VM}/compact_unevictable_allowed",
        "0 keeps compaction from moving mlocked pages",
        high=1,
    ),
    Setting(
        "unprivileged_userfaultfd",
        f"{_VM}/unprivileged_userfaultfd",
        "1 lets ordinary users answer kernel-mode faults",
        high=1,
    ),
    Setting("max_map_count", f"{_VM}/max_map_count", "mappings a process may have; each tile may be one", low=1024),
    Setting("nmi_watchdog", f"{_KERNEL}/nmi_watchdog", "1 occupies a hardware counter", high=1),
    Setting("overcommit_memory", f"{_VM}/overcommit_memory", "what the kernel promises beyond memory", high=2),
    Setting("swappiness", f"{_VM}/swappiness", "how readily anonymous pages are swapped out", high=200),
    Setting("numa_balancing", f"{_KERNEL}/numa_balancing", "the kernel moves pages between nodes", high=2),
    Setting(
        "fault_around",
        "/sys/kernel/debug/fault_around_bytes",
        "bytes mapped around a fault in a cached file; 4096 maps one page",
        low=4096,
        high=1 << 30,
    ),
    Setting("boost", f"{_CPUFREQ}/boost", "turbo frequencies", high=1),
)

PATTERNS = (
    ("hugepages[-SIZE]=N", "huge pages reserved in the pool (SIZE: 2M where left out)"),
    ("thp-SIZE=always|inherit|madvise|never", "the switch of one transparent huge page size"),
    ("readahead[@DEVICE]=KIB", "readahead of one block device, or of all"),
    ("governor=NAME", "frequency governor of all CPUs"),
)


def plan(tree: Tree, assignments: list[str]) -> list[Change]:
    """Turns ``KEY=VALUE`` words into file changes, validated against this machine; changes nothing.

    Raises :class:`BadInputError` (unknown key, bad value, key given twice) and :class:`MachineError` (this machine
    has no such setting).
    """
    changes: list[Change] = []
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not value:
            raise BadInputError(f"{assignment!r} is not KEY=VALUE; keys: {_keys()}")
        changes += _changes(tree, key.strip(), value.strip())
    paths = [change.path for change in changes]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice:
        keys = " and ".join(change.key for change in changes if change.path == twice)
        raise BadInputError(f"{keys} set the same file {twice}; give it once")
    return changes


def _changes(tree: Tree, key: str, value: str) -> list[Change]:
    for setting in FIXED:
        if setting.key == key:
            return [Change(key, _present(tree, key, setting.path), _checked(setting, value))]
    if found := re.fullmatch(r"hugepages(?:-(\w+))?", key):
        path = f"{_HUGETLB}/hugepages-{_kib(key, found[1] or '2M')}kB/nr_hugepages"
        return [Change(key, _present(tree, key, path), _number(key, value, 0, 2**40))]
    if found := re.fullmatch(r"thp-(\d+[KMG])", key, re.IGNORECASE):
        path = f"{_THP}/hugepages-{_kib(key, found[1])}kB/enabled"
        return [Change(key, _present(tree, key, path), _word(key, value, _SIZED_WORDS))]
    if found := re.fullmatch(r"readahead(?:@(.+))?", key):
        return _readahead(tree, key, found[1], _number(key, value, 0, 1 << 22))
    if key == "governor":
        return _governor(tree, value)
    raise BadInputError(f"unknown setting {key!r}; keys: {_keys()}")


def _keys() -> str:
    patterns = [pattern.partition("=")[0] for pattern, _ in PATTERNS]
    return ", ".join(patterns + [setting.key for setting in FIXED])


def _present(tree: Tree, key: str, path: str) -> str:
    if tree.exists(path):
        return path
    if key.startswith(("hugepages", "thp-")) and key not in ("thp-defrag", "thp-shmem"):
        offered = _offered(tree, path)
        raise MachineError(f"cannot set {key}: {path} does not exist; this kernel offers {offered}")
    raise MachineError(f"cannot set {key}: {path} does not exist on this kernel; see: pagelab doctor")


def _offered(tree: Tree, path: str) -> str:
    machine = describe(tree)
    if path.startswith(_HUGETLB):
        sizes = [pool["page_bytes"] for pool in machine["hugetlb"]]
    else:
        sizes = machine["mthp_bytes"] + [machine["thp_bytes"]] * (machine["thp_bytes"] is not None)
    return ", ".join(size_name(size) for size in sizes) or "no such page size"


def _checked(setting: Setting, value: str) -> str:
    if setting.words:
        return _word(setting.key, value, setting.words)
    return _number(setting.key, value, setting.low, setting.high)


def _word(key: str, value: str, words: tuple[str, ...]) -> str:
    if value not in words:
        raise BadInputError(f"{key}={value}: not a value of {key}; allowed: {', '.join(words)}")
    return value


def _number(key: str, value: str, low: int, high: int) -> str:
    if not re.fullmatch(r"-?[0-9]+", value) or not low <= int(value) <= high:
        raise BadInputError(f"{key}={value}: {key} takes a whole number from {low} to {high}")
    return str(int(value))


def _kib(key: str, size: str) -> int:
    found = re.fullmatch(r"([1-9][0-9]*)([KMG])", size.upper())
    if not found:
        raise BadInputError(f"{key}: {size!r} is not a page size; write 64K, 2M, 1G …")
    return int(found[1]) << {"K": 0, "M": 10, "G": 20}[found[2]]


def size_name(size_bytes: int) -> str:
    """``2097152`` as ``2M``: the way policies and settings write page sizes."""
    for shift, unit in ((30, "G"), (20, "M"), (10, "K")):
        if size_bytes >> shift and not size_bytes & ((1 << shift) - 1):
            return f"{size_bytes >> shift}{unit}"
    return str(size_bytes)


def _readahead(tree: Tree, key: str, device: str | None, value: str) -> list[Change]:
    names = [name for name in tree.names(_BDI) if tree.exists(f"{_BDI}/{name}/read_ahead_kb")]
    if device is not None:
        name = device_bdi(tree, device)
        if name not in names:
            raise MachineError(
                f"cannot set {key}: no block device {device!r}; devices: {', '.join(tree.names('/sys/block'))}"
            )
        names = [name]
    if not names:
        raise MachineError(f"cannot set {key}: {_BDI} lists no device; see: pagelab doctor")
    return [Change(key, f"{_BDI}/{name}/read_ahead_kb", value) for name in names]


def device_bdi(tree: Tree, device: str) -> str:
    """``vda`` as ``253:0``, its name under /sys/class/bdi; anything else unchanged."""
    name = device.removeprefix("/dev/")
    return (tree.get(f"/sys/block/{name}/dev") or device) if "/" not in name else device


def _policies(tree: Tree) -> list[str]:
    return [name for name in tree.names(_CPUFREQ) if tree.exists(f"{_CPUFREQ}/{name}/scaling_governor")]


def has_governor(tree: Tree) -> bool:
    """Whether ``governor=NAME`` can be set: in most virtual machines there is no frequency driver."""
    return bool(_policies(tree))


def _governor(tree: Tree, value: str) -> list[Change]:
    policies = _policies(tree)
    if not policies:
        raise MachineError(
            "cannot set governor: no frequency driver here (usual in virtual machines); see: pagelab doctor"
        )
    changes = []
    for name in policies:
        available = (tree.get(f"{_CPUFREQ}/{name}/scaling_available_governors") or "").split()
        if available:
            _word("governor", value, tuple(available))
        changes.append(Change("governor", f"{_CPUFREQ}/{name}/scaling_governor", value))
    return changes
