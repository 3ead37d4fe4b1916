"""The campaign's file, ``campaign.json`` (``pagelab.campaign/1``): the request, the plan and the results so far.

Each step writes the file before the next step begins, so that a killed campaign can go on.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pagelab.errors import BadInputError, another_would_do
from pagelab.layouts import Layout, Tile
from pagelab.models.document import Told, put
from pagelab.models.points import Role, Source

SCHEMA: Literal["pagelab.campaign/1"] = "pagelab.campaign/1"
NAME = "campaign.json"
CountsWay = Literal["auto", "measured", "simulated"]
Select = Literal["adaptive", "moselect", "profile", "random"]
EstimatorName = Literal["mean", "median", "low-quantile"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Asked(_Model):
    """A command, and how its model is made."""

    argv: list[str]
    cwd: str
    minutes: float = 60.0
    """For everything: trace, simulations and runs."""
    counts: CountsWay = "auto"
    processor: str | None = None
    """A preset's name or a description's path; None: this machine's preset."""
    caches: bool = False
    references: bool = False
    """Whether the trace keeps every reference, for predictions of processors that need them."""
    select: Select = "adaptive"
    estimator: EstimatorName = "median"
    layouts: int | None = None
    """Training layouts; None: as many as fit the minutes."""
    tests: int = 12
    aim: float = 0.03
    """Maximal relative error at which an adaptive campaign ends, by its own intervals."""
    window: str | None = None
    trace: str | None = None
    """A trace of the same command; None: captured."""
    seed: int = 1
    timeout_s: float | None = None


class Trial(_Model):
    """What one execution with 4K and one with 2M pages showed."""

    counts: Source
    counts_why: str
    window: str | None
    """Name of the program's window that is measured; null: the whole execution."""
    resident_bytes: int
    """With 2M pages."""
    run_s: float
    """Of the slower of the two."""
    faults_share: float
    """System time over processor time of what is measured, with 4K pages."""
    active: bool = False
    """Whether cycles with a walk active are counted beside C."""


class Simulated(_Model):
    """How counts are simulated."""

    processor: str
    description: str
    """SHA-256 of it."""
    caches: bool
    trace: str
    trace_digest: str | None = None
    """SHA-256 of the trace's header and length; null in campaigns before it was kept."""
    references: int


class Plan(_Model):
    """What fits the minutes; fixed after the pilot."""

    layouts: int
    """Training layouts, anchors among them."""
    tests: int
    candidates: int = 0
    """Requested layouts to choose from; small spaces have fewer distinct ones."""
    repeats: int
    """Blocks of each round: executions of a layout, of an anchor as many in each round."""
    rounds: int
    """At most; one that chooses by what was measured may end sooner."""
    executions: int
    run_s: float
    """Of one execution with all that goes with it."""
    simulating_s: float = 0.0
    """Expected time of simulating counts, beside that of the executions."""
    run_sd: float
    """Relative standard deviation of single runs, from the pilot."""
    perfect: float
    """Maximal error that a model without any error would show on the test layouts."""
    aim_minutes: float | None
    """Minutes with which that would be the aim; null where it is below it."""


class LayoutRow(_Model):
    """A layout of a round."""

    name: str
    role: Role
    tiles: list[tuple[str, int, int, int]]
    """Pool, start, end, page size: bytes."""

    @classmethod
    def of(cls, layout: Layout, role: Role) -> LayoutRow:
        """Makes the row of a layout."""
        tiles = [(tile.pool, tile.start, tile.end, tile.page_bytes) for tile in layout.tiles]
        return cls(name=layout.name, role=role, tiles=tiles)

    def layout(self) -> Layout:
        """The layout that this row describes."""
        return Layout(self.name, tuple(Tile(*tile) for tile in self.tiles))


class Round(_Model):
    """A study: these layouts, interleaved, so many executions of each."""

    directory: str
    repeats: int
    layouts: list[LayoutRow]


class Excluded(_Model):
    """Executions that are in no estimate, and why."""

    layout: str
    executions: int
    why: str
    whole: bool
    """Whether the layout has too few others, and is left out with them."""


class Campaign(_Model):
    """The whole file."""

    schema_: Literal["pagelab.campaign/1"] = Field(default=SCHEMA, alias="schema")
    asked: Asked
    workload: str
    machine: dict[str, Any]
    """Machine and provenance at the beginning."""
    spent_s: float = 0.0
    trial: Trial | None = None
    simulated: Simulated | None = None
    footprint: list[tuple[str, int]] = Field(default_factory=list)
    """Used tiles: pool and offset in bytes."""
    tests: list[LayoutRow] = Field(default_factory=list)
    plan: Plan | None = None
    rounds: list[Round] = Field(default_factory=list)
    stopped: str | None = None
    """Why no further round was chosen; null: the campaign goes on."""
    refused: str | None = None
    """The error that ended the last session; null: it was stopped, or it goes on. Until there is a plan, another
    request may then take the campaign's place."""
    excluded: list[Excluded] = Field(default_factory=list)
    told: list[Told] = Field(default_factory=list)


def read(directory: Path) -> Campaign | None:
    """Reads the campaign of a directory; None if there is none. `BadInputError` for a file that is no campaign."""
    path = directory / NAME
    if not path.exists():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data.get("schema") != SCHEMA:
            raise another_would_do(BadInputError(f"cannot go on with {directory}: {path.name} is no {SCHEMA}"))
        return Campaign.model_validate(data)
    except (OSError, ValidationError, json.JSONDecodeError, AttributeError, RecursionError) as error:
        text = str(error).splitlines()[0]
        raise another_would_do(BadInputError(f"cannot go on with {directory}: {path.name}: {text}")) from None


def write(directory: Path, campaign: Campaign) -> None:
    """Writes the campaign's file whole or not at all."""
    put(directory / NAME, campaign.model_dump_json(by_alias=True, indent=1) + "\n")
