"""Pages outside the campaign, on machines whose run time is known."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from playing import Machine, advised
from test_model_run import CLOCK, asked, campaign

from models.planted import DIGITISED, points
from pagelab.errors import BadInputError, MachineError
from pagelab.layouts import Layout, Tile
from pagelab.model_run import document, executions
from pagelab.model_run.checking import _judged, checked, text
from pagelab.model_run.estimate import Own, combined
from pagelab.models import judge, models
from pagelab.models.document import ModelFile, file_of, fits_of, read
from pagelab.models.judgement import Judgement


def rule(counts: dict[str, float]) -> float:
    return 4e6 + 3.0 * counts["h"] + 0.8 * counts["c"]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagelab.model_run.executions._CLOCK", CLOCK)
    monkeypatch.setattr("pagelab.model_run.checking.MOST_EXECUTIONS", 5)


@pytest.fixture(scope="module")
def trained(trace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("trained")
    patch = pytest.MonkeyPatch()
    patch.setattr("pagelab.model_run.planning._MOST_REPEATS", 3)
    patch.setattr("pagelab.model_run.executions._CLOCK", CLOCK)
    campaign(directory, Machine(trace, rule, "broadwell", noise=0.001), asked(trace, layouts=20))
    patch.undo()
    return directory / "gups.model"


@pytest.fixture
def model(trained: Path, tmp_path: Path) -> Path:
    shutil.copytree(trained, tmp_path / "gups.model")
    return tmp_path / "gups.model"


def off(found: ModelFile, name: str) -> float:
    assert found.fits is not None
    one = found.fits.named(name)
    assert one is not None
    assert one.test is not None
    return one.test.relative[found.layouts[-1].layout]


@pytest.mark.by_turns(4)
@pytest.mark.parametrize("faster", [1.0, 0.7])
def test_a_machine_that_follows_its_counts_is_predicted_however_fast_it_became(
    faster: float, trace: Path, model: Path
) -> None:
    machine = Machine(trace, lambda counts: faster * rule(counts), "broadwell", noise=0.001)
    found, kept = checked(model, "1G", None, 5.0, machine.tools())
    row = found.layouts[-1]
    assert (row.layout, row.role) == ("1G", "test")
    assert [one.role for one in found.layouts[:-1]] == ["train"] * (len(found.layouts) - 1)
    assert row.r == pytest.approx(rule({"h": row.h or 0.0, "c": row.c}), rel=0.01)
    assert off(found, "gp") == pytest.approx(0.0, abs=0.01)
    assert row.extra["4K_moved"] == pytest.approx(faster, rel=0.01)
    assert set(machine.order) == {"4K", "2M", "1G"}
    told = text(found, kept)
    assert "in 1G pages: R = " in told
    assert f"{100 * (faster - 1):.0f}%".replace("-", "−") in told.replace(".0%", "%") or faster == 1.0
    assert read(kept) == found
    again = Machine(trace, rule, "broadwell")
    assert checked(model, "1G", None, 5.0, again.tools())[0] == found
    assert again.runs == 0


def test_a_machine_with_pages_that_walks_do_not_explain_puts_every_model_wrong(trace: Path, model: Path) -> None:
    machine = Machine(trace, rule, "broadwell", noise=0.001)
    plain = machine.simulated

    def with_other_cost(layout: Any) -> dict[str, float]:
        counts = plain(layout)
        slow = any(tile.page_bytes == 1 << 30 for tile in layout.tiles)
        return {**counts, "h": counts["h"] + (1e6 if slow else 0.0)}

    machine.simulated = with_other_cost  # type: ignore[method-assign]
    found, _ = checked(model, "1G", None, 5.0, machine.tools())
    assert off(found, "gp") < -0.1


def test_pages_of_a_rule_are_checked_by_their_name(trace: Path, model: Path) -> None:
    found, kept = checked(model, "anon=0-20M:2M", None, 5.0, Machine(trace, rule, "broadwell", noise=0.001).tools())
    assert kept.name == f"check-{found.layouts[-1].layout}.json"
    assert off(found, "gp") == pytest.approx(0.0, abs=0.02)


def test_what_cannot_be_checked_is_refused(trace: Path, model: Path, tmp_path: Path) -> None:
    tools = Machine(trace, rule, "broadwell").tools()
    with pytest.raises(BadInputError, match="already; check others"):
        checked(model, "2M", None, 5.0, tools)
    with pytest.raises(BadInputError, match="give it --minutes"):
        checked(model, "1G", None, 1e-6, tools)
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInputError, match="pagelab model run"):
        checked(tmp_path / "empty", "1G", None, 5.0, tools)


def test_memory_that_does_not_get_the_pages_is_no_measurement(trace: Path, model: Path) -> None:
    failed = {"outcome": {"status": "failed", "exit_code": 1, "signal": None}}
    machine = Machine(trace, rule, "broadwell", wrong={"all": failed})
    with pytest.raises(MachineError, match=r"pagelab doctor.*pagelab study status"):
        checked(model, "1G", None, 5.0, machine.tools())


def policy(directory: Path, mib: int) -> Path:
    """A policy of the name ``advice`` with so much anonymous memory in 2M pages."""
    path = directory / f"first-{mib}.toml"
    pages = f'{{ mosaic = [["0", "{mib}M", "2M"]], otherwise = "4K" }}'
    path.write_text(f'name = "advice"\n\n[[rule]]\nmemory = "anon"\npages = {pages}\n')
    return path


@pytest.mark.by_turns(4)
def test_policies_of_one_name_are_measured_each_for_itself(trace: Path, model: Path, tmp_path: Path) -> None:
    """Regression: the second was "checked" with the executions of the first, and replaced its file."""
    kept = {}
    for mib in (8, 40):
        machine = Machine(trace, rule, "broadwell", noise=0.001)
        found, path = checked(model, None, policy(tmp_path, mib), 5.0, machine.tools())
        assert machine.runs == 3 * 5
        row = found.layouts[-1]
        assert row.layout == "advice"
        assert row.r == pytest.approx(rule({"h": row.h or 0.0, "c": row.c}), rel=0.01)
        assert re.fullmatch(r"check-advice-[0-9a-f]{8}\.json", path.name)
        kept[mib] = (found, path)
    assert kept[8][1] != kept[40][1]
    for mib, (found, path) in kept.items():
        assert read(path) == found
        again = Machine(trace, rule, "broadwell")
        assert checked(model, None, policy(tmp_path, mib), 5.0, again.tools()) == (found, path)
        assert again.runs == 0


def slow(model: Path) -> None:
    """The campaign's plan says that an execution takes a second."""
    campaign_ = document.read(model)
    assert campaign_ is not None
    assert campaign_.plan is not None
    plan = campaign_.plan.model_copy(update={"run_s": 1.0})
    document.write(model, campaign_.model_copy(update={"plan": plan}))


@pytest.mark.by_turns(4)
def test_more_minutes_add_executions_to_a_check(trace: Path, model: Path) -> None:
    """Three, then four of each of three layouts; fewer minutes take none away."""
    slow(model)
    for minutes, runs, repeats in ((0.16, 9, 3), (0.21, 3, 4), (0.16, 0, 4)):
        machine = Machine(trace, rule, "broadwell", noise=0.001)
        found, kept = checked(model, "1G", None, minutes, machine.tools())
        assert machine.runs == runs
        assert found.layouts[-1].repeats == repeats
        assert kept.name == "check-1G.json"
        assert f"the median of {repeats} executions" in text(found, kept)


def test_the_error_of_r_has_that_of_the_anchors_in_it(trace: Path, model: Path) -> None:
    """R is divided by the root of what both anchors moved by: their errors count half each, now and in the campaign."""
    found, _ = checked(model, "1G", None, 5.0, Machine(trace, rule, "broadwell", noise=0.001).tools())
    row = found.layouts[-1]
    times: dict[str, list[float]] = {"4K": [], "2M": [], "1G": []}
    for run in executions.read(model / "check-1G", "work"):
        assert run.r_s is not None
        times[run.layout].append(run.r_s)
    assert [len(values) for values in times.values()] == [5, 5, 5]
    of_rows = {one.layout: one for one in found.layouts}
    parts = [(Own.of(times["1G"], "median").error, 4.0)]
    for size in ("4K", "2M"):
        before = of_rows[size]
        assert before.r_sd is not None
        assert before.repeats is not None
        told = Own.told(before.r_sd / before.r, before.repeats, "median")
        parts += [(one.error / 2, one.repeats - 1) for one in (Own.of(times[size], "median"), told)]
    error, freedom = combined(parts)
    assert row.r_se == pytest.approx(row.r * error)
    assert row.r_freedom == pytest.approx(freedom)
    assert error > parts[0][0]
    assert row.r_sd == pytest.approx(row.r * Own.of(times["1G"], "median").sd)


def test_a_policy_of_advise_is_checked_where_the_program_uses_one_kind(
    trace: Path, model: Path, tmp_path: Path
) -> None:
    """Regression: its mosaic for two kinds of memory was refused, after all its executions."""
    machine = Machine(trace, rule, "broadwell", noise=0.001)
    found, _ = checked(model, None, advised(tmp_path), 5.0, machine.tools())
    row = found.layouts[-1]
    same = machine.simulated(Layout("own", (Tile("anon", 0, 20 << 20),)))
    assert (row.h, row.m, row.c) == (same["h"], same["m"], same["c"])
    assert off(found, "gp") == pytest.approx(0.0, abs=0.02)


def test_a_mosaic_over_two_kinds_that_are_used_is_refused_before_any_execution(
    trace: Path, model: Path, tmp_path: Path
) -> None:
    campaign_ = document.read(model)
    assert campaign_ is not None
    every = [*campaign_.footprint, ("heap", 0), ("arenas", 0)]
    document.write(model, campaign_.model_copy(update={"footprint": every}))
    machine = Machine(trace, rule, "broadwell")
    with pytest.raises(BadInputError, match="its mosaic is for anon and arenas in one pool"):
        checked(model, None, advised(tmp_path), 5.0, machine.tools())
    assert machine.runs == 0
    assert not list(model.glob("check-*"))


def test_a_check_on_another_machine_is_refused(trace: Path, model: Path) -> None:
    machine = Machine(trace, rule, "broadwell", host="there")
    with pytest.raises(MachineError, match="began on another machine"):
        checked(model, "1G", None, 5.0, machine.tools())
    assert machine.runs == 0


def test_the_folds_are_those_of_the_models_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: models were fitted with the file's seed, and judged in folds of another."""
    data = points(12)
    file = file_of(data, DIGITISED)
    fits = fits_of(data, judge(data, [models()["poly1"]], folds=4, seed=7), 7)
    row = file.layouts[5].model_copy(update={"layout": "1G", "role": "test"})
    seeds = []

    def judged(*args: Any, **options: Any) -> Judgement:
        seeds.append(options["seed"])
        return judge(*args, **options)

    monkeypatch.setattr("pagelab.model_run.checking.judge", judged)
    found = _judged(file.model_copy(update={"fits": fits}), row)
    assert seeds == [7]
    assert found.fits is not None
    assert found.fits.seed == 7
