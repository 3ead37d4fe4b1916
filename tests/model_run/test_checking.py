"""Pages outside the campaign, on machines whose run time is known."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from playing import Machine
from test_model_run import CLOCK, asked, campaign

from pagelab.errors import BadInputError, MachineError
from pagelab.model_run.checking import checked, text
from pagelab.models.document import ModelFile, read


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
