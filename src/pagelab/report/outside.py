"""Gives advice on using 2 MiB pages without pagelab, with their cost in resident memory."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass

from pagelab.analysis import wording
from pagelab.analysis.model import Analysis
from pagelab.analysis.verdict import judged_of
from pagelab.report.tables import Table

_MEMORY = "peak_rss_bytes"
_WAYS = (
    (
        "one program, its heap",
        "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 PROGRAM",
        "memory from malloc, from glibc 2.35 on, if THP is madvise or always; not the program's own mappings",
    ),
    (
        "in the source",
        "madvise(address, length, MADV_HUGEPAGE)",
        "whole aligned 2 MiB of that mapping; before its pages are touched",
    ),
    (
        "every program",
        "echo always | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
        "anonymous memory of all programs, until the next boot; one that is worse off keeps out of it with "
        "prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)",
    ),
    (
        "a group of programs",
        "systemd-run --scope --property=MemoryHigh=4G PROGRAM",
        "bounds what the pages cost: a control group limits memory, and has no switch for the size of its pages",
    ),
)
"""Whom a way is for, what to type, what it affects (Linux: admin-guide/mm/transhuge, admin-guide/cgroup-v2; glibc
manual: Memory Allocation Tunables)."""


@dataclass(frozen=True)
class WithoutPagelab:
    sentences: tuple[str, ...]
    ways: Table


def outside(analysis: Analysis) -> WithoutPagelab | None:
    """The advice; None where no program was faster under uniform 2 MiB pages than under the kernel's own choice."""
    if analysis.over_set is not None or analysis.design.imported_from is not None:
        return None
    pages = {policy: _pages(text) for policy, text in analysis.design.policy_texts.items()}
    faster = [
        one.contrast
        for one in judged_of(analysis.compared(), analysis.design, analysis.metrics)
        if one.answer.said == "lower"
        and one.metric.kind == "time"
        and pages.get(one.contrast.policy) == "2M"
        and pages.get(one.contrast.baseline) == "kernel"
    ]
    if not faster:
        return None
    names = wording.listing(list(dict.fromkeys(c.workload for c in faster)))
    sentences = [
        f"What made {names} faster can be had without pagelab. Measure it again there: it need not be all of it."
    ]
    costs = [cost for c in faster if (cost := _cost(analysis, c.workload, c.policy, c.baseline))]
    if costs:
        sentences.append(
            f"What it costs is memory that is resident but not used: at their peak {wording.listing(costs)}."
        )
    ways = Table(("for", "how", "effect"), _WAYS, "2 MiB pages outside pagelab", words=3)
    return WithoutPagelab(tuple(sentences), ways)


def _pages(text: str) -> str | None:
    """The page size of a policy with one size everywhere; ``kernel`` for a policy without sizes; None for others."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None
    document.pop("name", None)
    found = document.pop("pages", "kernel")
    return found if isinstance(found, str) and not document else None


def _cost(analysis: Analysis, workload: str, policy: str, baseline: str) -> str | None:
    """The change of the median memory: ``sort took 3.1% more``; None where it is not known."""
    medians = []
    for name in (policy, baseline):
        ids = [c.id for c in analysis.design.conditions if (c.workload, c.policy) == (workload, name)]
        summary = analysis.summary(ids[0], _MEMORY) if ids else None
        if summary is None or summary.median <= 0:
            return None
        medians.append(summary.median)
    change = medians[0] / medians[1] - 1
    if abs(change) < 0.005:
        return f"{workload} took as much"
    return f"{workload} took {wording.percent(abs(change), signed=False)} {'more' if change > 0 else 'less'}"
