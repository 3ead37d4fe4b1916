"""Simulators and models: what a program would do under page colours, caches and TLBs that this machine may not have.

``pagelab.simulate.paging(trace, colours=[1, 2, 4])`` gives the page faults of every memory size as a polars frame.
Names are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pagelab.simulate.page_faults import curves as curves
    from pagelab.simulate.page_faults import paging as paging

_HOMES = {
    "curves": "pagelab.simulate.page_faults",
    "paging": "pagelab.simulate.page_faults",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
