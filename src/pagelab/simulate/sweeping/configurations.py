"""The simulation of a task: the functions of ``pagelab simulate paging``, ``cache`` and ``tlb`` with arguments.

Plain, pickled data: whatever was in files (processors, policies, saved maps) has been read, so that workers need the
trace only.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
import polars as pl

from ..cache_runs import cache
from ..hardware import Processor
from ..page_faults import coloring, curves, smallest_of
from ..placements import History, Placement
from ..references import NoReferencesError
from ..replacement_runs import replacement
from ..sampling import sample
from ..tlb_runs import tlb

Seeds = Sequence[int | None]
"""A seed each; None where nothing is drawn."""


class Configuration(Protocol):
    """One way to simulate a trace."""

    simulator: ClassVar[str]

    @property
    def name(self) -> str:
        """A name that is unique in a sweep; it contains the differences from the defaults."""

    @property
    def full(self) -> bool:
        """Whether the trace must have every reference; otherwise page runs are enough."""

    @property
    def drawn(self) -> bool:
        """Whether the result depends on the seed."""

    @property
    def together(self) -> bool:
        """Whether several seeds at once cost less than one by one, since one reading of the trace serves all."""

    @property
    def identity(self) -> str:
        """A digest of everything that decides the rows, except trace and seed."""

    def rows(self, trace: Any, seeds: Seeds) -> pl.DataFrame:
        """Rows with columns of :data:`.rows.SCHEMA`, also ``seed``. Raises :class:`~pagelab.errors.BadInputError`."""

    def check(self) -> None:
        """Raises :class:`~pagelab.errors.BadInputError` for settings with which no trace can be simulated."""


def _digest(document: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Paging:
    """Page faults; ``memory_pages`` None: all sizes (LRU only)."""

    simulator: ClassVar[str] = "paging"
    name: str
    policy: str
    colours: tuple[int, ...]
    memory_pages: tuple[int, ...] | None
    coloring: str
    page_bytes: int
    sample: float | None = None
    sample_pages: int | None = None

    @property
    def full(self) -> bool:
        return False

    @property
    def drawn(self) -> bool:
        return self.policy == "random" or self._sampled

    @property
    def together(self) -> bool:
        return False

    @property
    def _sampled(self) -> bool:
        return self.sample is not None or self.sample_pages is not None

    @cached_property
    def identity(self) -> str:
        return _digest({"simulator": self.simulator, **asdict(self)})

    def rows(self, trace: Any, seeds: Seeds) -> pl.DataFrame:
        parts = [self._faults(trace, seed or 0).with_columns(seed=pl.lit(seed, pl.Int64)) for seed in seeds]
        return pl.concat(parts).with_columns(
            coloring=pl.lit(self.coloring), page_bytes=pl.lit(self.page_bytes, pl.Int64)
        )

    def _faults(self, trace: Any, seed: int) -> pl.DataFrame:
        name, masks = coloring(self.coloring, "coloring")
        shared: dict[str, Any] = {"colouring": name, "masks": masks, "page_bytes": self.page_bytes}
        if self._sampled:
            assert self.memory_pages is not None
            return sample(
                trace,
                self.memory_pages,
                self.colours,
                rate=self.sample,
                most_pages=self.sample_pages,
                seed=seed,
                **shared,
            ).with_omissions()
        if self.policy == "lru":
            smallest = smallest_of(self.memory_pages)
            return curves(trace, self.colours, smallest=smallest, **shared).faults(self.memory_pages)
        assert self.memory_pages is not None
        return replacement(trace, [self.policy], self.memory_pages, self.colours, seed=seed, **shared)

    def check(self) -> None:
        self.rows(np.zeros(1, np.uint64), [0])


@dataclass(frozen=True)
class _Placed(ABC):
    """The common part of caches and TLBs."""

    name: str
    processor: Processor
    placement: Placement
    history: History

    @property
    def full(self) -> bool:
        return True

    @property
    def together(self) -> bool:
        return True

    @cached_property
    def identity(self) -> str:
        # The source of a processor's numbers does not change their effect.
        processor = {"name": self.processor.name, "caches": self.processor.caches, "tlb": self.processor.tlb}
        return _digest(
            {
                "simulator": type(self).__name__,
                "name": self.name,
                "processor": processor,
                "placement": [self.placement.name, self.placement.native(0)],
                "history": asdict(self.history),
                **self._further(),
            }
        )

    def _further(self) -> dict[str, Any]:
        return {}

    def _columns(self) -> list[pl.Expr]:
        return [
            pl.lit(self.processor.name).alias("hardware"),
            pl.lit(self.history.memory_bytes, pl.Int64).alias("machine_bytes"),
            pl.lit(self.history.used).alias("used"),
            pl.lit(self.history.cached).alias("cached"),
            pl.lit(self.history.turnover).alias("turnover"),
        ]

    @abstractmethod
    def rows(self, trace: Any, seeds: Seeds) -> pl.DataFrame:
        """As :meth:`Configuration.rows`."""

    def check(self) -> None:
        small = replace(self.history, memory_bytes=64 << 20, turnover=0.0)
        with suppress(NoReferencesError):
            replace(self, history=small).rows(np.empty(0, np.uint64), [0])


@dataclass(frozen=True)
class Cache(_Placed):
    """Physically indexed caches under one placement."""

    simulator: ClassVar[str] = "cache"

    @property
    def drawn(self) -> bool:
        return True

    def rows(self, trace: Any, seeds: Seeds) -> pl.DataFrame:
        drawn = [seed or 0 for seed in seeds]
        runs = cache(trace, self.processor, [self.placement], seeds=drawn, history=self.history, threads=1)
        executions = runs.executions.drop(pl.selectors.starts_with("misses."))
        return pl.concat([executions, runs.levels], how="diagonal").with_columns(*self._columns())


@dataclass(frozen=True)
class Tlb(_Placed):
    """Translation with one choice of page sizes."""

    simulator: ClassVar[str] = "tlb"
    caches: bool = False

    @property
    def drawn(self) -> bool:
        hardware = self.processor.tlb or {}
        nested = hardware.get("nested")
        arrays = [*hardware.get("first", ()), *hardware.get("second", ()), *hardware.get("walk_caches", ())]
        replaces = any(array.get("replacement") == "random" for array in arrays)
        return self.caches or replaces or bool(hardware.get("coalesces")) or nested is not None

    def _further(self) -> dict[str, Any]:
        return {"data_caches": self.caches}

    def rows(self, trace: Any, seeds: Seeds) -> pl.DataFrame:
        drawn = [seed or 0 for seed in seeds]
        runs = tlb(
            trace,
            self.processor,
            [self.placement],
            caches=self.caches,
            seeds=drawn,
            history=self.history,
            threads=1,
        )
        found = [runs.executions, runs.levels] if self.caches else [runs.executions]
        rows = pl.concat(found, how="diagonal").with_columns(*self._columns(), data_caches=pl.lit(self.caches))
        return rows if self.drawn else rows.with_columns(seed=pl.lit(None, pl.Int64))
