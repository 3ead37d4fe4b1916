"""The effect of a wrong simulator on predictions: TLB entries, ways or the cost of walks are off by a share.

The models keep their fit to the counts of the training. The campaign's test layouts are simulated again with a
description that differs in one respect, and the models predict from those counts. This stands for a simulator that is
wrong about the hardware to predict, or for hardware that is described wrongly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from pagelab.errors import BadInputError
from pagelab.layouts import Layout
from pagelab.model_run import document
from pagelab.model_run.predicting import known_trace
from pagelab.models.base import Model
from pagelab.models.document import ModelFile, inside
from pagelab.models.judgement import Errors, predicted
from pagelab.models.points import Points
from pagelab.simulate import hardware
from pagelab.simulate.hardware import Processor
from pagelab.simulate.tlb_runs import tlb

SCHEMA: Literal["pagelab.simulator-sensitivity/1"] = "pagelab.simulator-sensitivity/1"
_INPUTS = ("h", "m", "c")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Change(_Model):
    """One description that differs in one respect."""

    what: Literal["unchanged", "entries", "ways", "walk cost"]
    by: float
    """The change, as a fraction; 0 where there is none."""
    counts: dict[str, float | None]
    """Of H, M and C: the sum over the test layouts over that of the training's description; 1 where both are 0, null
    where only that of the training's is."""
    errors: dict[str, float]
    """Maximal relative errors on the test layouts, by model."""
    refusal: str = ""
    """Why the description cannot be built; then there are neither counts nor errors."""


class SimulatorSensitivity(_Model):
    """What ``pagelab model sensitivity --simulator --json`` prints."""

    schema_: Literal["pagelab.simulator-sensitivity/1"] = Field(default=SCHEMA, alias="schema")
    workload: str
    processor: str
    test_layouts: int
    changes: list[Change]
    refusals: dict[str, str]
    """Models that could not be fitted, and why."""


def simulator_sensitivity(
    file: ModelFile, path: Path, models: Sequence[Model], *, by: float = 0.5
) -> SimulatorSensitivity:
    """Errors on the test layouts if the simulator's entries, ways or walk costs are scaled by 1 − ``by`` or 1 + ``by``.

    ``path`` is the file's own path. Counts of the hardware are multiplied, layout by layout, by the ratio of simulated
    counts after and before the change. Raises `BadInputError` for models without test layouts, or not made by ``model
    run``.
    """
    if not 0 < by < 1:
        raise BadInputError(f"--by {100 * by:g}: not above 0 and below 100 percent")
    trace, simulated = known_trace(file, path)
    assert file.campaign is not None
    assert file.campaign.simulated is not None
    layouts = _tests(file, path)
    described = hardware.load(simulated.processor)
    points = file.points()
    testing = points.role("test")
    fitted, refusals = {}, {}
    for model in models:
        try:
            fitted[model.name] = model.fit(points if model.own_points else points.role("train"))
        except BadInputError as error:
            refusals[model.name] = str(error)
    base = _simulated(trace, described, layouts, caches=simulated.caches)
    changes = []
    for what, share, changed in _descriptions(described, by, caches=simulated.caches):
        try:
            found = base if changed is described else _simulated(trace, changed, layouts, caches=simulated.caches)
        except BadInputError as error:
            changes.append(Change(what=what, by=share, counts={}, errors={}, refusal=str(error)))
            continue
        counted = file.source == "counted"
        if counted and (risen := _from_nothing(testing, base, found)):
            changes.append(Change(what=what, by=share, counts={}, errors={}, refusal=risen))
            continue
        asked = _asked(testing, base, found, counted=counted)
        errors = {name: Errors.of(asked, predicted(one, asked)).maximum for name, one in fitted.items()}
        changes.append(Change(what=what, by=share, counts=_ratios(base, found), errors=errors))
    return SimulatorSensitivity(
        workload=file.workload,
        processor=file.campaign.simulated.processor,
        test_layouts=len(layouts),
        changes=changes,
        refusals=refusals,
    )


def _tests(file: ModelFile, path: Path) -> list[Layout]:
    """The campaign's test layouts, read beside the file, in the file's order."""
    campaign = document.read(inside(path).parent)
    names = [one.layout for one in file.layouts if one.role == "test"]
    known = {} if campaign is None else {row.name: row.layout() for one in campaign.rounds for row in one.layouts}
    if not names or any(name not in known for name in names):
        why = "it has no test layouts" if not names else "the campaign that made it is not beside it"
        raise BadInputError(f"cannot simulate {file.workload} anew: {why}; make a model with: pagelab model run")
    return [known[name] for name in names]


def _simulated(trace: Path, described: Processor, layouts: Sequence[Layout], *, caches: bool) -> dict[str, Any]:
    """Simulated H, M and C by layout."""
    policies = [Layout(f"layout-{at}", one.tiles).policy() for at, one in enumerate(layouts)]
    found = tlb(trace, described, policies, caches=caches).executions
    return {name: np.array(found[name].to_list(), dtype=float) for name in _INPUTS}


def _asked(testing: Points, base: Mapping[str, Any], found: Mapping[str, Any], *, counted: bool) -> Points:
    """The test layouts with the counts of the changed description."""
    values = {}
    for name in testing.inputs:
        own = testing.inputs[name]
        scale = np.divide(found[name], base[name], out=np.ones_like(own), where=base[name] > 0)
        values[name] = own * scale if counted else found[name]
    return replace(testing, h=values.get("h"), m=values.get("m"), c=values["c"])


def _from_nothing(testing: Points, base: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """Why counted values cannot be scaled: simulated ones that rose from zero; else empty."""
    for name in testing.inputs:
        risen = np.flatnonzero((base[name] == 0) & (found[name] > 0))
        if risen.size:
            return (
                f"{name.upper()} of {testing.layouts[int(risen[0])]} rises from a simulated 0, so the counted one has "
                "no scale"
            )
    return ""


def _ratios(base: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, float | None]:
    sums = {name.upper(): (float(base[name].sum()), float(found[name].sum())) for name in _INPUTS}
    return {
        name: after / before if before > 0 else (None if after > 0 else 1.0) for name, (before, after) in sums.items()
    }


_What = Literal["unchanged", "entries", "ways", "walk cost"]


def _descriptions(described: Processor, by: float, *, caches: bool) -> list[tuple[_What, float, Processor]]:
    found: list[tuple[_What, float, Processor]] = [("unchanged", 0.0, described)]
    for share in (-by, by):
        found.append(("entries", share, _arrays(described, 1 + share, ways=False)))
    for share in (-by, by):
        found.append(("ways", share, _arrays(described, 1 + share, ways=True)))
    for share in (-by, by):
        found.append(("walk cost", share, _walks(described, 1 + share, caches=caches)))
    return found


def _arrays(described: Processor, factor: float, *, ways: bool) -> Processor:
    """The processor with scaled arrays of both levels: more or fewer entries at the same ways, or the reverse."""
    table = dict(described.needed("tlb"))
    for level in ("first", "second"):
        table[level] = [_array(one, factor, ways=ways) for one in table.get(level, [])]
    return replace(described, tlb=table)


def _array(array: Mapping[str, Any], factor: float, *, ways: bool) -> dict[str, Any]:
    parts = max(1, len(array.get("parts", [])))
    own, entries = int(array.get("ways", 0)), int(array["entries"])
    if own == 0:
        # A fully associative array has as many ways as entries.
        return dict(array) if ways else {**array, "entries": max(1, round(entries / parts * factor)) * parts}
    changed = max(1, round(own * factor)) if ways else own
    sets = max(1, round(entries / parts / changed * (1.0 if ways else factor)))
    return {**array, "ways": changed, "entries": sets * changed * parts}


def _walks(described: Processor, factor: float, *, caches: bool) -> Processor:
    """The processor with scaled times to read table entries; with caches, those of every level and of memory."""
    if not caches:
        table = dict(described.needed("tlb"))
        table["entry_cycles"] = max(1, round(int(table.get("entry_cycles", 10)) * factor))
        return replace(described, tlb=table)
    data = dict(described.needed("caches"))
    data["levels"] = [{**one, "cycles": max(1, round(int(one["cycles"]) * factor))} for one in data["levels"]]
    data["memory_cycles"] = max(1, round(int(data["memory_cycles"]) * factor))
    return replace(described, caches=data)
