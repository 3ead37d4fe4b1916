"""Simulators and models: what a program would do under page colours, caches and TLBs that this machine may not have.

``pagelab.simulate.paging(trace, colours=[1, 2, 4])`` gives the page faults of every memory size as a polars frame.
Names are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pagelab.simulate.caching import CacheRuns as CacheRuns
    from pagelab.simulate.caching import cache as cache
    from pagelab.simulate.chosen_sizes import replacement as replacement
    from pagelab.simulate.hardware import presets as presets
    from pagelab.simulate.history import AgedMemory as AgedMemory
    from pagelab.simulate.history import History as History
    from pagelab.simulate.history import aged_memory as aged_memory
    from pagelab.simulate.model import effective_memory as effective_memory
    from pagelab.simulate.model import expected_allocations as expected_allocations
    from pagelab.simulate.page_faults import curves as curves
    from pagelab.simulate.page_faults import paging as paging
    from pagelab.simulate.placing import placement as placement
    from pagelab.simulate.sampling import sampled_paging as sampled_paging
    from pagelab.simulate.sweeping.run import Sweep as Sweep
    from pagelab.simulate.sweeping.run import sweep as sweep
    from pagelab.simulate.translation import TlbRuns as TlbRuns
    from pagelab.simulate.translation import tlb as tlb

_HOMES = {
    "CacheRuns": "pagelab.simulate.caching",
    "AgedMemory": "pagelab.simulate.history",
    "History": "pagelab.simulate.history",
    "Sweep": "pagelab.simulate.sweeping.run",
    "TlbRuns": "pagelab.simulate.translation",
    "aged_memory": "pagelab.simulate.history",
    "cache": "pagelab.simulate.caching",
    "curves": "pagelab.simulate.page_faults",
    "effective_memory": "pagelab.simulate.model",
    "expected_allocations": "pagelab.simulate.model",
    "paging": "pagelab.simulate.page_faults",
    "placement": "pagelab.simulate.placing",
    "presets": "pagelab.simulate.hardware",
    "replacement": "pagelab.simulate.chosen_sizes",
    "sampled_paging": "pagelab.simulate.sampling",
    "sweep": "pagelab.simulate.sweeping.run",
    "tlb": "pagelab.simulate.translation",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
