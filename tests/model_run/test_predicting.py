"""Predictions for other TLBs: of a machine that takes as long as a rule says, the truth is known."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from playing import Machine, advised
from test_model_run import asked, campaign

from pagelab import trace as traces
from pagelab.errors import BadInputError
from pagelab.layouts.layout import PLACES
from pagelab.model_run import document
from pagelab.model_run.predicting import known_trace, predict_for
from pagelab.models.document import FILE, ModelFile, read, write


def rule(counts: dict[str, float]) -> float:
    return 4e6 + 3.0 * counts["h"] + 0.8 * counts["c"]


@pytest.fixture(scope="module")
def trained(trace: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ModelFile]:
    directory = tmp_path_factory.mktemp("trained")
    patch = pytest.MonkeyPatch()
    patch.setattr("pagelab.model_run.planning._MOST_REPEATS", 3)
    patch.setattr("pagelab.model_run.executions._CLOCK", """echo '{"cycle_ns": 1.0}'""")
    _, file = campaign(directory, Machine(trace, rule, "broadwell", noise=0.001), asked(trace, layouts=20))
    patch.undo()
    return directory / "gups.model", file


@pytest.mark.parametrize("pages", ["4K", "2M", "anon=0-20M:2M"])
@pytest.mark.parametrize("processor", ["skylake", "haswell"])
def test_the_run_time_with_another_tlb_is_that_of_its_counts(
    processor: str, pages: str, trained: tuple[Path, ModelFile]
) -> None:
    path, file = trained
    told = predict_for(file, path, processor, pages)
    assert told.h is not None
    assert told.c is not None
    truth = rule({"h": told.h, "m": 0.0, "c": told.c})
    if not told.warnings:
        assert told.r == pytest.approx(truth, rel=0.01)
    assert told.low is not None
    assert told.high is not None
    assert told.low <= truth <= told.high
    assert {one.kind for one in told.warnings} <= {"extrapolation"}


def test_the_trainings_own_pages_are_what_was_measured(trained: tuple[Path, ModelFile]) -> None:
    path, file = trained
    for size in ("4K", "2M"):
        told = predict_for(file, path, None, size)
        row = next(row for row in file.layouts if row.layout == size)
        assert (told.h, told.m, told.c) == (row.h, row.m, row.c)
        assert told.r == pytest.approx(row.r, rel=0.01)


@pytest.mark.by_turns(4)
def test_counts_of_the_hardware_are_scaled_and_that_is_told(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hardware walks as Haswell's description does, layouts are simulated as Broadwell's."""
    monkeypatch.setattr("pagelab.model_run.planning._MOST_REPEATS", 3)
    machine = Machine(trace, rule, "haswell", noise=0.001, counts=True)
    _, file = campaign(tmp_path, machine, asked(trace, counts="measured"))
    told = predict_for(file, tmp_path / "gups.model", "broadwell", "4K")
    own = next(row for row in file.layouts if row.layout == "4K")
    assert told.c == pytest.approx(own.c)  # what the training's simulator says of 4K is what was counted
    assert "scaled" in {one.kind for one in told.warnings}


def test_what_cannot_be_simulated_is_refused(trained: tuple[Path, ModelFile], tmp_path: Path) -> None:
    path, file = trained
    with pytest.raises(BadInputError, match=r"no trace.*it was imported"):
        predict_for(file.model_copy(update={"campaign": None}), path, "skylake", "4K")
    assert file.campaign is not None
    assert file.campaign.simulated is not None
    gone = file.campaign.simulated.model_copy(update={"trace": str(tmp_path / "gone.trace")})
    campaign_ = file.campaign.model_copy(update={"simulated": gone})
    with pytest.raises(BadInputError, match=r"trace .*gone\.trace is gone"):
        predict_for(file.model_copy(update={"campaign": campaign_}), path, "skylake", "4K")
    other = file.campaign.simulated.model_copy(update={"description": "0"})
    campaign_ = file.campaign.model_copy(update={"simulated": other})
    with pytest.raises(BadInputError, match=r"the description of .* has changed"):
        predict_for(file.model_copy(update={"campaign": campaign_}), path, "skylake", "4K")
    with pytest.raises(BadInputError, match="pagelab model run --references"):
        predict_for(file, path, "sapphire-rapids", "4K")


def test_another_trace_in_the_place_of_the_models_is_refused(
    trace: Path, trained: tuple[Path, ModelFile], tmp_path: Path
) -> None:
    """Regression: run times were predicted from whatever trace lay there, and only "extrapolates" was said."""
    path, file = trained
    assert file.campaign is not None
    assert file.campaign.simulated is not None
    copy = tmp_path / "copy.trace"
    shutil.copy(trace, copy)
    moved = file.campaign.simulated.model_copy(update={"trace": str(copy)})
    file = file.model_copy(update={"campaign": file.campaign.model_copy(update={"simulated": moved})})
    assert known_trace(file, path)[0] == copy
    pages = np.uint64(PLACES[1].start >> 12) + np.arange(1000, dtype=np.uint64)
    traces.write(copy, [pages], page_bytes=4096, pools=PLACES, force=True)
    with pytest.raises(BadInputError, match=r"copy\.trace is another trace than the model was made with"):
        predict_for(file, path, None, "4K")


def test_a_directory_is_read_and_written_as_its_file(trained: tuple[Path, ModelFile], tmp_path: Path) -> None:
    path, file = trained
    copy = tmp_path / "copy.model"
    shutil.copytree(path, copy)
    write(copy, file.model_copy(update={"workload": "renamed"}))
    assert read(copy).workload == read(copy / FILE).workload == "renamed"
    (copy / FILE).unlink()
    with pytest.raises(BadInputError, match="goes on with: pagelab model run"):
        read(copy)


def test_a_policy_of_advise_is_simulated_where_the_program_uses_one_kind(
    trained: tuple[Path, ModelFile], tmp_path: Path
) -> None:
    """Its mosaic is for mappings and arenas together, and the trace has a pool for each."""
    path, file = trained
    told = predict_for(file, path, None, None, advised(tmp_path))
    same = predict_for(file, path, None, "anon=0-20M:2M")
    assert (told.h, told.m, told.c, told.r) == (same.h, same.m, same.c, same.r)
    other = tmp_path / "other.model"
    shutil.copytree(path, other)
    made = document.read(other)
    assert made is not None
    every = [*made.footprint, ("heap", 0), ("arenas", 0)]
    document.write(other, made.model_copy(update={"footprint": every}))
    with pytest.raises(BadInputError, match="its mosaic is for anon and arenas in one pool"):
        predict_for(file, other, None, None, advised(tmp_path))


def test_the_interval_is_that_of_the_campaigns_estimator(trained: tuple[Path, ModelFile]) -> None:
    path, file = trained
    assert "95% interval for a layout's median: " in predict_for(file, path, None, "4K").text()
    assert (
        "95% interval for one run, if runs scatter normally: " in predict_for(file, path, None, "4K", of="run").text()
    )
