"""The task of a worker, and the errors that end a sweep early."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import PagelabError
from .configurations import Configuration
from .traces import TraceFile


@dataclass(frozen=True)
class Task:
    """One trace in one configuration with some seeds: the complete input of a worker."""

    digest: str
    """Decides the name of the part: equal for tasks with the same rows."""
    trace: TraceFile
    configuration: Configuration
    seeds: tuple[int | None, ...]
    pagelab: str | None
    """The version that planned it, which must be the one that does it."""

    @property
    def title(self) -> str:
        first, last = self.seeds[0], self.seeds[-1]
        seeds = "" if first is None else f", seed {first}" if first == last else f", seeds {first} … {last}"
        return f"{self.trace.name}, {self.configuration.simulator} {self.configuration.name}{seeds}"


class SweepInterruptedError(PagelabError):
    """The sweep was interrupted; all finished tasks are in the dataset."""

    exit_code = 130
