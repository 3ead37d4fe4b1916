"""pagelab: a laboratory for virtual-memory page placement on Linux.

The ``pagelab`` command and this package expose the same operations; see docs/architecture for how they hang
together. Importing the package imports nothing heavy: what ``dir(pagelab)`` names is imported when it is used.

>>> import pagelab
>>> record = pagelab.run(pagelab.RunRequest(argv=["sort", "words.txt"], policy_toml='pages = "2M"'))  # doctest: +SKIP
>>> print(record)  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pagelab import environment as _environment  # noqa: F401 - before anything that changes it

_NAMES = {
    "BadInputError": "pagelab.errors",
    "MachineError": "pagelab.errors",
    "PagelabError": "pagelab.errors",
    "Record": "pagelab.record",
    "RunRequest": "pagelab.runner",
    "run": "pagelab.runner",
    "Store": "pagelab.study.store",
    "analyse": "pagelab.analysis",
    "load": "pagelab.analysis",
    "write_report": "pagelab.report.write",
}
"""Functions and classes, and the module that has each."""
_PACKAGES = (
    "analysis",
    "diagnose",
    "machine",
    "models",
    "placement",
    "policy",
    "report",
    "simulate",
    "stats",
    "study",
    "trace",
)

__all__ = [
    "BadInputError",
    "MachineError",
    "PagelabError",
    "Record",
    "RunRequest",
    "Store",
    "__version__",
    "analyse",
    "analysis",
    "diagnose",
    "load",
    "machine",
    "models",
    "placement",
    "policy",
    "report",
    "run",
    "simulate",
    "stats",
    "study",
    "trace",
    "write_report",
]

if TYPE_CHECKING:
    from pagelab import analysis, diagnose, machine, models, placement, policy, report, simulate, stats, study, trace
    from pagelab.analysis import analyse, load
    from pagelab.errors import BadInputError, MachineError, PagelabError
    from pagelab.record import Record
    from pagelab.report.write import write_report
    from pagelab.runner import RunRequest, run
    from pagelab.study.store import Store

    __version__: str


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    if name in _PACKAGES:
        return import_module(f"pagelab.{name}")
    if name == "__version__":
        from importlib.metadata import version

        return version("pagelab")
    raise AttributeError(f"module 'pagelab' has no attribute {name!r}; it has: {', '.join(sorted(__all__))}")


def __dir__() -> list[str]:
    return sorted(__all__)
