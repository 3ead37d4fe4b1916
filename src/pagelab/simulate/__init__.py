"""Simulators and models of a program under page colours, caches and TLBs of other machines.

``pagelab.simulate.paging(trace, colours=[1, 2, 4])`` gives the page faults of every memory size as a polars frame.
Names are imported when they are first used. None is also the name of a module in here: importing that module would put
it in the name's place.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pagelab.simulate.analytical_model import effective_memory as effective_memory
    from pagelab.simulate.analytical_model import expected_allocations as expected_allocations
    from pagelab.simulate.cache_runs import CacheRuns as CacheRuns
    from pagelab.simulate.cache_runs import cache as cache
    from pagelab.simulate.hardware import presets as presets
    from pagelab.simulate.history import AgedMemory as AgedMemory
    from pagelab.simulate.history import History as History
    from pagelab.simulate.history import aged_memory as aged_memory
    from pagelab.simulate.page_faults import curves as curves
    from pagelab.simulate.page_faults import paging as paging
    from pagelab.simulate.placements import placement as placement
    from pagelab.simulate.replacement_runs import replacement as replacement
    from pagelab.simulate.sampling import sampled_paging as sampled_paging
    from pagelab.simulate.sweeping.run import Sweep as Sweep
    from pagelab.simulate.sweeping.run import sweep as sweep
    from pagelab.simulate.tlb_estimate import TlbEstimate as TlbEstimate
    from pagelab.simulate.tlb_estimate import tlb_windows as tlb_windows
    from pagelab.simulate.tlb_runs import TlbRuns as TlbRuns
    from pagelab.simulate.tlb_runs import tlb as tlb

_HOMES = {
    "CacheRuns": "pagelab.simulate.cache_runs",
    "AgedMemory": "pagelab.simulate.history",
    "History": "pagelab.simulate.history",
    "Sweep": "pagelab.simulate.sweeping.run",
    "TlbRuns": "pagelab.simulate.tlb_runs",
    "aged_memory": "pagelab.simulate.history",
    "cache": "pagelab.simulate.cache_runs",
    "curves": "pagelab.simulate.page_faults",
    "effective_memory": "pagelab.simulate.analytical_model",
    "expected_allocations": "pagelab.simulate.analytical_model",
    "paging": "pagelab.simulate.page_faults",
    "placement": "pagelab.simulate.placements",
    "presets": "pagelab.simulate.hardware",
    "replacement": "pagelab.simulate.replacement_runs",
    "sampled_paging": "pagelab.simulate.sampling",
    "sweep": "pagelab.simulate.sweeping.run",
    "TlbEstimate": "pagelab.simulate.tlb_estimate",
    "tlb": "pagelab.simulate.tlb_runs",
    "tlb_windows": "pagelab.simulate.tlb_estimate",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
