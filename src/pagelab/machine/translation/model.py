"""What is measured of address translation, and what is concluded; the latter is stored as ``pagelab.translation/1``."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Kind = Literal["4K", "4K in 2M", "4K in 1G", "2M", "2M in 1G", "dense"]
HostPages = Literal["none", "4K", "2M or larger", "both", "unknown"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Memory(_Model):
    """Memory in pages of one size."""

    page: Literal["4K", "2M", "1G"]
    bytes: int
    huge_bytes: int


class Sample(_Model):
    """One chase: the median of three timed pieces."""

    round: int
    kind: Kind
    pages: int
    chains: int
    ns_per_load: float


class Chases(BaseModel):
    """What ``pagelab-workload page-chase`` prints (``pagelab.page-chase/1``)."""

    model_config = ConfigDict(frozen=True)

    rounds: int
    seed: int
    memories: list[Memory]
    cycle_ns: list[float]
    """Of each round: one of many additions that wait for each other."""
    samples: list[Sample]


class Cycles(_Model):
    """Cycles a load beyond what the same loads take where nothing has to be translated; the median of rounds."""

    median: float
    low: float | None = Field(description="None: too few rounds for an exact 95% interval.")
    high: float | None


class Step(_Model):
    """A level of the hardware ends: longer chases cost more a load."""

    most_that_fit: int = Field(description="Pages of the longest chase that is within a quarter of the step.")
    first_beyond: int = Field(description="Pages of the shortest chase beyond three quarters of it.")
    low: int = Field(description="95% interval of where the step lies, from resampled rounds.")
    high: int
    before: Cycles
    after: Cycles


class WalkCost(_Model):
    """What a load of a chase costs that misses every level, by how much memory the tables' last level takes."""

    pages: int
    table_bytes: int
    cycles: Cycles


class Levels(_Model):
    """What chases over pages of one size say."""

    page: Literal["4K", "2M"]
    reference: Kind
    longest: int
    steps: list[Step] = Field(description="The first ends the first level, the second the second one.")
    walks: list[WalkCost]


class TranslationFile(_Model):
    """``pagelab.translation/1``."""

    schema_: Literal["pagelab.translation/1"] = Field(
        default="pagelab.translation/1", validation_alias="schema", serialization_alias="schema"
    )
    levels: list[Levels]
    cycle_ns: float
    host_pages: HostPages
    walks_at_once: Cycles | None = Field(description="Walks under way on average, at least; not cycles but a number.")
    rounds: int
    seed: int
    cpu: str
    virtualisation: str
    host: str
    machine: str
    boot_id: str
    measured_at: str
    pagelab: str | None

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
