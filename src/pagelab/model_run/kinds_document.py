"""What the design over kinds of memory found: ``kinds.json``, and what ``pagelab model kinds --json`` prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pagelab.errors import BadInputError
from pagelab.model_run.document import EstimatorName
from pagelab.models.document import Told

SCHEMA: Literal["pagelab.model-kinds/1"] = "pagelab.model-kinds/1"
NAME = "kinds.json"
LEVEL = 0.95


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Kind(_Model):
    """A kind of memory, and what the program has of it."""

    kind: str
    touched_bytes: int
    """In 4K pages; at most: memory that is given back and mapped again counts each time."""
    left_out: str | None
    """Why it is no factor of the design; null: it is one."""


class Combination(_Model):
    """Some of the kinds in 2M pages, the others in 4K pages."""

    name: str
    """As the layout's: ``4K``, or the kinds in 2M pages with + between them."""
    large: list[str]
    r: float
    """By the estimator, in the document's unit."""
    runs: int
    h: float | None
    m: float | None
    c: float | None


class Effect(_Model):
    """A main effect, or an interaction: factors of R, in percent; 0 is none."""

    kinds: list[str]
    percent: float
    low_percent: float | None
    """Null: too few blocks for an interval."""
    high_percent: float | None
    p: float
    p_holm: float
    """Over all effects of the design."""

    @property
    def seen(self) -> bool:
        """After Holm's correction."""
        return self.p_holm <= round(1 - LEVEL, 12)


class KindsDocument(_Model):
    """What ``pagelab model kinds --json`` prints, and ``kinds.json``."""

    schema_: Literal["pagelab.model-kinds/1"] = Field(default=SCHEMA, alias="schema")
    workload: str
    command: list[str]
    minutes: float
    verdict: str
    window: str | None
    """Name of the program's window that is R; null: user time of whole executions."""
    unit: Literal["s", "cycles"]
    """Of R."""
    estimator: EstimatorName
    counts: Literal["counted", "simulated"] | None
    """Source of H, M and C; null: there are none."""
    counts_why: str
    level: float = LEVEL
    kinds: list[Kind]
    blocks: int
    """In which every combination counts."""
    combinations: list[Combination]
    effects: list[Effect]
    told: list[Told]
    directory: str
    next: str
    why: str


def read(directory: Path) -> KindsDocument | None:
    """What a design found; None where the directory has none. `BadInputError` for a file that is none, or newer."""
    path = directory / NAME
    if not path.is_file():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data.get("schema") != SCHEMA:
            raise BadInputError(f"cannot read {path}: it is no {SCHEMA}; make one with: pagelab model kinds -- CMD")
        return KindsDocument.model_validate(data)
    except (OSError, ValidationError, ValueError, AttributeError, RecursionError) as error:
        text = str(error).splitlines()[0]
        raise BadInputError(f"cannot read {path}: {text}; make one with: pagelab model kinds -- CMD") from None
