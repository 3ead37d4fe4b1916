"""The machine as the records know it, and what about it changed while the study ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from pagelab.analysis import wording
from pagelab.analysis.data import StudyData
from pagelab.analysis.model import Difference, Fact, Machine
from pagelab.record import Record

_VOLATILE = frozenset(
    {"time", "free_pages", "reserved_pages", "surplus_pages", "pages", "run_dir", "loadavg", "writable"}
)
"""Last parts of keys that differ from run to run by their nature; a difference in them says nothing."""

_FIRST = (
    ("provenance.cpu.model_name", "processor"),
    ("provenance.cpu.count", "CPUs"),
    ("provenance.cpu.microcode", "microcode"),
    ("machine.architecture", "architecture"),
    ("provenance.memory_bytes", "memory"),
    ("provenance.virtualisation.kind", "virtualisation"),
    ("provenance.container.kind", "container"),
    ("provenance.kernel.release", "kernel"),
    ("provenance.libc", "C library"),
    ("machine.page_sizes_bytes", "page sizes"),
    ("machine.thp.enabled", "transparent huge pages"),
    ("machine.thp.defrag", "THP defragmentation"),
    ("provenance.governor", "frequency governor"),
    ("provenance.boost", "frequency boost"),
    ("provenance.smt", "SMT"),
    ("provenance.swap", "swap"),
    ("settings.cpus", "pinned to CPUs"),
    ("settings.aslr", "ASLR"),
    ("settings.scheduler", "scheduler"),
    ("provenance.pagelab.version", "pagelab"),
    ("provenance.pagelab.commit", "pagelab commit"),
)
"""What a reader asks first; everything else follows under its own key."""


def machine_of(data: StudyData) -> Machine:
    """Facts of the first record that has them, and every difference between records."""
    condition_of = dict(data.runs.select("run_id", "condition").iter_rows())
    known = [(condition_of.get(run), _flat(r)) for run, r in data.records if r.machine or r.provenance]
    if not known:
        return Machine(known=False, facts=(), differences=())
    return Machine(known=True, facts=tuple(_facts(known[0][1])), differences=tuple(_differences(known)))


def _flat(record: Record) -> dict[str, str]:
    settings = record.settings.model_dump(mode="json", include={"cpus", "aslr", "node", "scheduler", "cgroup", "uid"})
    found: dict[str, str] = {}
    for part, value in (("provenance", record.provenance), ("machine", record.machine), ("settings", settings)):
        found |= dict(_walk(part, value or {}))
    return found


def _walk(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    """Dotted keys and shown values; lists of scalars are one value, lists of tables are numbered."""
    if isinstance(value, dict):
        for key, inner in sorted(value.items()):
            yield from _walk(f"{prefix}.{key}", inner)
    elif isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        for index, inner in enumerate(value):
            yield from _walk(f"{prefix}[{index}]", inner)
    else:
        yield prefix, _shown(prefix, value)


def _shown(key: str, value: Any) -> str:
    if value is None or value in ([], {}, ""):
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        if key.endswith(("page_sizes_bytes", "mthp_bytes")):
            return ", ".join(wording.page_size(int(v)) for v in value)
        return ", ".join(_shown(key + ".", v) for v in value)
    if isinstance(value, int) and key.endswith("_bytes"):
        return wording.size(value)
    return str(value)


def _facts(flat: dict[str, str]) -> Iterator[Fact]:
    named = set()
    for prefix, label in _FIRST:
        keys = [key for key in flat if key == prefix or key.startswith((prefix + ".", prefix + "["))]
        values = list(dict.fromkeys(flat[key] for key in keys if flat[key] != "not known"))
        named.update(keys)
        if values:
            yield Fact("summary", label, " ".join(values))
    for key in sorted(flat):
        if not _volatile(key):
            yield Fact(key.split(".")[0], key.partition(".")[2], flat[key])


def _volatile(key: str) -> bool:
    return key.rsplit(".", 1)[-1].split("[")[0] in _VOLATILE


def _differences(known: list[tuple[object, dict[str, str]]]) -> Iterator[Difference]:
    for key in sorted({key for _, flat in known for key in flat if not _volatile(key)}):
        values = Counter(flat[key] for _, flat in known if key in flat)
        without = sum(key not in flat for _, flat in known)
        if (len(values) > 1 or without) and not _by_design(key, known):
            ordered = sorted(values.items(), key=lambda item: (-item[1], item[0]))
            yield Difference(key, tuple(ordered), without)


def _by_design(key: str, known: list[tuple[object, dict[str, str]]]) -> bool:
    """Whether *key* is a setting that never changes within a condition: what the study varies on purpose."""
    if not key.startswith("settings."):
        return False
    values: dict[object, set[str | None]] = {}
    for condition, flat in known:
        values.setdefault(condition, set()).add(flat.get(key))
    return all(len(seen) == 1 for seen in values.values())
