"""Native half of pagelab (crates/python): policies cross as JSON (use :mod:`pagelab.policy`), arrays as buffers."""

from collections.abc import Callable
from os import PathLike

import numpy as np
from numpy.typing import NDArray

class PolicyRefused(ValueError):  # noqa: N818 (as the native part names it)
    """The argument is JSON: place (source, line), message, allowed, next."""

def parse_policy(text: str, path: str, machine_json: str | None = None) -> str: ...
def policy_from_flags(
    flags_json: str,
    machine_json: str | None = None,
    base_toml: str | None = None,
    base_path: str | None = None,
) -> str: ...
def policy_from_csv(text: str, path: str, machine_json: str | None = None) -> str: ...
def policy_to_toml(policy_json: str) -> str: ...
def check_policy(text: str, path: str, machine_json: str | None = None) -> None: ...
def generic_machine() -> str: ...
def warning_kinds() -> list[str]: ...
def read_guest(content: bytes) -> str: ...
def stats_columns() -> list[str]: ...
def stats_reports(
    values: NDArray[np.float64],
    ends: NDArray[np.uint64],
    experiment_ends: NDArray[np.uint64],
    groups: NDArray[np.uint64],
    keys: NDArray[np.uint64],
    *,
    seed: int,
    resamples: int,
    ratio_draws: int,
    estimate_draws: int,
    null_draws: int,
    tail: float,
    threads: int,
) -> bytes: ...
def stats_replicates(
    values: NDArray[np.float64],
    ends: NDArray[np.uint64],
    group: int,
    key: int,
    *,
    seed: int,
    resamples: int,
    ratio_draws: int,
) -> bytes: ...

class Paging:
    """A simulation of paging that takes references; page numbers have the address space in bits 52 to 63."""

    @staticmethod
    def stacks(name: str, masks: list[int], colours: list[int]) -> Paging: ...
    def feed_array(self, pages: NDArray[np.uint64], counts: NDArray[np.uint64] | None = None) -> None: ...
    def curves(self) -> list[tuple[int, int, int, bytes, bytes]]: ...

class PageRuns:
    """The page runs of a trace file; :meth:`feed` gives the next batch to simulations, and its references or None."""

    header: str
    references: int | None
    def __init__(self, path: str, page_bits: int, data_only: bool) -> None: ...
    def feed(self, simulations: list[Paging]) -> int | None: ...

class TraceRefused(ValueError):  # noqa: N818 (as the native part names it)
    """Arguments: the kind of error, the message."""

def trace_work(work: str) -> str: ...

class TraceBatches:
    @property
    def header(self) -> str: ...
    def __init__(
        self, path: str | PathLike[str], page_bits: int | None, kinds: int, shard: tuple[int, int] | None
    ) -> None: ...
    def references(self) -> list[bytes] | None: ...
    def runs(self) -> list[bytes] | None: ...

class TraceFile:
    def __init__(self, path: str | PathLike[str], header: str, level: int) -> None: ...
    def references(
        self,
        address: NDArray[np.uint64],
        kind: NDArray[np.uint8],
        size: NDArray[np.uint32],
        thread: NDArray[np.uint32],
        asid: NDArray[np.uint16],
    ) -> None: ...
    def runs(self, page: NDArray[np.uint64], asid: NDArray[np.uint16], count: NDArray[np.uint64]) -> None: ...
    def finish(self, ending: str) -> None: ...

class PlacedSimulation:
    """Caches or TLBs under every placement of ``design`` (JSON), on every machine that its seeds draw."""

    @staticmethod
    def caches(hierarchy: str, design: str, threads: int) -> PlacedSimulation: ...
    @staticmethod
    def tlbs(hardware: str, hierarchy: str | None, design: str, threads: int) -> PlacedSimulation: ...
    def feed_array(self, references: NDArray[np.uint64], asid: int, thread: int) -> None: ...
    def feed_file(self, path: str, report: Callable[[int, int | None], None] | None = None) -> str: ...
    def finish(self) -> str: ...
