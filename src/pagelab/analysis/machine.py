"""Describes the machine from the records: changes during the study, time that programs waited for a processor, and
whether memory that the host had taken back was backed again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import ceil
from statistics import median
from typing import Any

import polars as pl

from pagelab.analysis import wording
from pagelab.analysis.data import StudyData
from pagelab.analysis.metrics import ANALYSED
from pagelab.analysis.model import Difference, Drift, Fact, Machine
from pagelab.contract.settings import RUN_SETTINGS
from pagelab.record import Record
from pagelab.study.host_backing import HUGE, largest_page, with_room
from pagelab.study.primary import may_wait

_VOLATILE = frozenset(
    {"time", "free_pages", "reserved_pages", "surplus_pages", "pages", "run_dir", "loadavg", "writable"}
)
"""Last parts of keys that always differ from run to run; a difference in them means nothing."""

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
    *((f"settings.{one.field}", one.label) for one in RUN_SETTINGS if one.label),
    ("provenance.pagelab.version", "pagelab"),
    ("provenance.pagelab.commit", "pagelab commit"),
)
"""Facts that come first in the report, with their labels; all others follow under their own keys."""


_SETTINGS = {"cgroup", "uid", *(one.field for one in RUN_SETTINGS if one.kind not in ("seconds", "size"))}
"""Settings in the record that describe the machine; limits and sizes may differ by workload, and do not."""


def machine_of(data: StudyData) -> Machine:
    """Facts of the first record that has them, and every difference between records."""
    condition_of = dict(data.runs.select("run_id", "condition").iter_rows())
    known = [(condition_of.get(run), _flat(r)) for run, r in data.records if r.machine or r.provenance]
    if not known:
        return Machine(known=False, facts=(), differences=())
    return Machine(known=True, facts=tuple(_facts(known[0][1])), differences=tuple(_differences(known)))


def _flat(record: Record) -> dict[str, str]:
    settings = record.settings.model_dump(mode="json", include=_SETTINGS)
    found: dict[str, str] = {}
    for part, value in (("provenance", record.provenance), ("machine", record.machine), ("settings", settings)):
        found |= dict(_walk(part, value or {}))
    return found


def _walk(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    """Dotted keys and their values as text; a list of scalars is one value, a list of tables is numbered."""
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
    """Whether *key* is a setting that never changes within a condition, so that the study varies it on purpose."""
    if not key.startswith("settings."):
        return False
    values: dict[object, set[str | None]] = {}
    for condition, flat in known:
        values.setdefault(condition, set()).add(flat.get(key))
    return all(len(seen) == 1 for seen in values.values())


_FEWEST = 9
_CHANCE = 0.01
"""A trend is reported below this p: there is one test per study, on data in randomised order."""


def drift_of(ratios: list[tuple[int, float]], randomised: bool = True) -> Drift:
    """The drift in ``ratios``: (place in the schedule, metric divided by its condition's median), in schedule order.

    Kendall's tau-b (Kendall 1945), and the medians of the first and last thirds of the schedule. With fewer than
    nine executions there is no result. ``randomised``: whether pagelab made the order of the runs.
    """
    values = [ratio for _, ratio in ratios]
    if len(values) < _FEWEST:
        return Drift(len(values), None, None, None, "Too few executions to look for drift.")
    third = len(values) // 3
    first, last = median(values[:third]), median(values[-third:])
    tau, p = None, 1.0
    if len(set(values)) > 1:
        from scipy.stats import kendalltau  # heavy: most of a second, which `compare` need not have

        found = kendalltau([place for place, _ in ratios], values)
        tau, p = float(found.statistic), float(found.pvalue)
    trend = "no trend beyond chance" if p >= _CHANCE else f"there is a trend, {wording.p_value(p)}"
    sentence = (
        f"From the first to the last third of the schedule, executions {_changed(first, last)} "
        f"(Kendall's τ = {wording.digits(tau or 0.0, 2)}: {trend}); "
        + (
            "the blocks spread this over all conditions alike."
            if randomised
            else "how it met the conditions is not known."
        )
    )
    return Drift(len(values), first, last, tau, sentence)


def _changed(first: float, last: float) -> str:
    """The change in words: ``became 1.2% slower at the median``; of a first value that is not above 0, both values."""
    if first <= 0:
        ends = f"from {wording.digits(first, 2)} to {wording.digits(last, 2)}"
        return f"went, at the median, {ends} times the median of their condition"
    change = last / first - 1
    return f"became {wording.percent(abs(change), signed=False)} {'slower' if change > 0 else 'faster'} at the median"


MUCH = 0.05
"""Share of the wall time from which waiting is reported, under any policy."""


def waiting_of(data: StudyData) -> str | None:
    """A caveat where programs waited for a processor.

    None where they waited little, where that is not known, and where both ran at once on one processor by request. Only
    conditions whose metric may contain waiting count: processor time does not, nor does a number of faults or events.
    """
    if "waiting_s" not in data.runs.columns or data.plan.co_run:
        return None
    passing = [one.name for one in data.plan.conditions if may_wait(one.metric)]
    done = data.runs.filter(
        pl.col("condition").is_in(passing)
        & ~pl.col("warmup")
        & pl.col("status").is_in(ANALYSED)
        & (pl.col("wall_s") > 0)
    )
    by_policy = (
        done.filter(pl.col("waiting_s").is_not_null())
        .group_by("policy", maintain_order=True)
        .agg(pl.col("waiting_s").sum() / pl.col("wall_s").sum())
    )
    ordered = sorted(by_policy.iter_rows(), key=lambda one: -one[1])
    if not ordered or ordered[0][1] < MUCH:
        return None
    shares = [f"{_of_wall(share)} under {policy}" for policy, share in ordered[:4]]
    return (
        "Programs were ready to run and had no processor (others ran beside them, or their own threads), in parts of "
        f"their wall time, for {wording.listing(shares)}: differences in wall time are differences in that waiting as "
        "well."
    )


def _of_wall(share: float) -> str:
    """The share in words. It can exceed 1: several threads wait at once, and a program also waits before it begins."""
    return wording.percent(share, signed=False) if share < 1 else "more than all of it"


_WITH_FIRST_TOUCHES = ("wall_s", "user_s", "system_s", "cpu_s")
"""Metrics of whole programs. A program's own measurements may begin after its first touches."""


def unbacked_of(data: StudyData) -> str | None:
    """A caveat where policies differ in huge pages, and the host had not backed the programs' memory before they began.

    None where the machine keeps its free memory, or where at least half of the executions were backed (the first of a
    study cannot be).
    """
    times = [one for one in data.plan.active() if one.metric in _WITH_FIRST_TOUCHES]
    largest = {largest_page(text) for text in {one.request.policy_toml for one in times}}
    if len(largest) < 2 or max(largest) < HUGE:
        return None
    records = [record for _, record in data.records if (record.machine or {}).get("free_page_reporting")]
    unbacked = sum(not record.settings.host_backed_bytes for record in records)
    if 2 * unbacked <= len(records):
        return None
    mebibytes = ceil(with_room(max(record.peak_rss_bytes for record in records)) / (1 << 20))
    return (
        f"This machine returns free memory to its host, and before {unbacked:,} of "
        f"{wording.count(len(records), 'execution')} it was not backed again: first touches, of 2M pages above all, "
        "may have waited for the host, and a difference in time may be that. "
        f'To exclude it: host_backed = "{mebibytes}M" in study.toml.'
    )
