"""A simulator that is wrong in one respect: its counts by construction, and errors that follow from them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from playing import Machine
from test_model_run import asked, campaign

from pagelab.errors import BadInputError
from pagelab.model_run.wrong_simulator import SimulatorSensitivity, simulator_sensitivity
from pagelab.models import models
from pagelab.models.document import FILE, ModelFile, read
from pagelab.simulate import hardware


@pytest.fixture(scope="module")
def trained(trace: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ModelFile]:
    patch = pytest.MonkeyPatch()
    patch.setattr("pagelab.model_run.planning._MOST_REPEATS", 3)
    patch.setattr("pagelab.model_run.executions._CLOCK", """echo '{"cycle_ns": 1.0}'""")
    directory = tmp_path_factory.mktemp("trained")
    _, file = campaign(directory, Machine(trace, processor="broadwell", noise=0.001), asked(trace))
    patch.undo()
    return directory / "gups.model", file


@pytest.fixture(scope="module")
def found(trained: tuple[Path, ModelFile]) -> SimulatorSensitivity:
    path, file = trained
    every = models()
    return simulator_sensitivity(file, path, [every[name] for name in ("alam", "poly1", "gp")])


def test_unchanged_it_shows_the_errors_of_the_campaign(
    found: SimulatorSensitivity, trained: tuple[Path, ModelFile]
) -> None:
    _, file = trained
    first = found.changes[0]
    assert (first.what, first.by, first.counts) == ("unchanged", 0.0, {"H": 1.0, "M": 1.0, "C": 1.0})
    assert file.fits is not None
    for name in ("alam", "poly1", "gp"):
        fit = file.fits.named(name)
        assert fit is not None
        assert fit.test is not None
        assert first.errors[name] == pytest.approx(fit.test.maximum)
    assert found.test_layouts == 12


def test_half_the_cost_of_a_read_is_half_of_c_and_nothing_else(
    found: SimulatorSensitivity, trained: tuple[Path, ModelFile]
) -> None:
    _, file = trained
    half = next(one for one in found.changes if one.what == "walk cost" and one.by < 0)
    assert half.counts == {"H": 1.0, "M": 1.0, "C": pytest.approx(0.5)}
    training, testing = file.points().role("train"), file.points().role("test")
    slope, constant = np.polyfit(training.c, training.r, 1)
    line = np.max(np.abs((constant + slope * testing.c / 2) / testing.r - 1))
    assert half.errors["poly1"] == pytest.approx(line, rel=1e-6)
    assert half.errors["gp"] > 5 * found.changes[0].errors["gp"]


def test_more_entries_miss_less_and_fewer_more(found: SimulatorSensitivity) -> None:
    fewer, more = (one.counts for one in found.changes if one.what == "entries")
    assert fewer["M"] > 1 > more["M"]
    assert fewer["C"] > 1 > more["C"]
    assert [one.what for one in found.changes] == ["unchanged", *np.repeat(["entries", "ways", "walk cost"], 2)]
    assert not any(one.refusal for one in found.changes)


@pytest.mark.parametrize("processor", [name for name in hardware.presets() if hardware.load(name).tlb is not None])
def test_every_preset_can_be_changed(processor: str) -> None:
    """Entries that ways and parts divide, whatever they are: each description is built."""
    from pagelab.model_run.wrong_simulator import _descriptions
    from pagelab.simulate.placements import design
    from pagelab.simulate.tlb_runs import started

    described = hardware.load(processor)
    for by in (0.1, 0.5, 0.9):
        for _, _, changed in _descriptions(described, by, caches=False):
            started(changed.needed("tlb"), None, design("kernel", 1), 1)


@pytest.mark.by_turns(4)
def test_as_it_is_typed(trained: tuple[Path, ModelFile]) -> None:
    path, _ = trained
    words = [sys.executable, "-m", "pagelab", "model", "sensitivity", str(path), "--simulator", "--model", "gp"]
    shown = subprocess.run([*words, "--by", "40"], capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert "12 test layouts" in lines[0]
    assert lines[1].split() == ["simulator", "H", "M", "C", "gp"]
    assert lines[7].startswith("walk cost −40%")
    told = subprocess.run([*words, "--json"], capture_output=True, text=True, check=True)
    assert SimulatorSensitivity.model_validate_json(told.stdout).changes[-1].by == 0.5


def test_what_has_no_simulator_is_refused(trained: tuple[Path, ModelFile], tmp_path: Path) -> None:
    path, file = trained
    imported = file.model_copy(update={"campaign": None})
    with pytest.raises(BadInputError, match="it has no trace"):
        simulator_sensitivity(imported, path, [models()["gp"]])
    alone = tmp_path / FILE
    shutil.copy(path / FILE, alone)
    shutil.copy(path / "program.trace", tmp_path) if (path / "program.trace").exists() else None
    with pytest.raises(BadInputError, match="the campaign that made it is not beside it"):
        simulator_sensitivity(read(alone), alone, [models()["gp"]])
    with pytest.raises(BadInputError, match="not above 0 and below 100 percent"):
        simulator_sensitivity(file, path, [models()["gp"]], by=1.0)


def test_counts_that_rose_from_nothing_have_no_ratio() -> None:
    """Regression: "× 1.00", and counted points stayed as they were."""
    from pagelab.model_run.wrong_simulator import _from_nothing, _ratios
    from pagelab.models import Points

    nothing, some = np.zeros(2), np.array([0.0, 1e6])
    base, found = {"h": nothing, "m": some, "c": nothing}, {"h": some, "m": 2 * some, "c": nothing}
    assert _ratios(base, found) == {"H": None, "M": 2.0, "C": 1.0}
    counted = Points.of("w", r=[9e9, 9e9], c=[1, 2], h=[1, 2], m=[1, 2], layouts=["a", "b"])
    assert _from_nothing(counted, base, found) == "H of b rises from a simulated 0, so the counted one has no scale"
    assert _from_nothing(counted, {**base, "h": some}, found) == ""
