"""Report, prediction and page of one campaign, with an invented source of counters and where there is none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from playing import Machine
from test_model_run import asked, campaign

from pagelab.model_run.answer import following
from pagelab.models.document import read

pytestmark = pytest.mark.needs_page_sizes


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "pagelab", *map(str, arguments)], capture_output=True, text=True)


@pytest.fixture(params=[True, False], ids=["counted", "simulated"])
def model(
    request: pytest.FixtureRequest, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, str]:
    """A campaign's directory, and the source that its model must name."""
    monkeypatch.setattr("pagelab.model_run.planning._MOST_REPEATS", 3)
    monkeypatch.setattr("pagelab.model_run.executions._CLOCK", """echo '{"cycle_ns": 1.0}'""")
    campaign(tmp_path, Machine(trace, counts=request.param, noise=0.001), asked(trace, counts="auto", select="profile"))
    return tmp_path / "gups.model", "counted" if request.param else "simulated"


@pytest.mark.by_turns(4)
def test_report_and_predictions_work_and_name_the_source(model: tuple[Path, str], tmp_path: Path) -> None:
    directory, source = model
    report = run("model", "report", directory, "--json")
    assert report.returncode == 0, report.stderr
    assert json.loads(report.stdout)["source"] == source
    page = run("model", "report", directory, "--out", tmp_path / "page")
    assert page.returncode == 0, page.stderr
    assert source in (tmp_path / "page/index.html").read_text()
    other = run("predict", directory, "--processor", "sandy-bridge", "--pages", "2M")
    assert other.returncode == 0, other.stderr
    assert ("scaled by counted over simulated" in other.stdout) == (source == "counted")
    layouts = json.loads((directory / "model.json").read_text())["layouts"]
    small = next(row for row in layouts if row["layout"] == "4K")
    given = run("predict", directory, "--h", small["h"], "--m", small["m"], "--c", small["c"], "--json")
    assert given.returncode == 0, given.stderr
    told = json.loads(given.stdout)
    assert told["r"] == pytest.approx(small["r"], rel=0.05)
    file = read(directory)
    assert file.campaign is not None
    assert "--processor NAME --pages 2M\n" in following(directory, file)
    untraced = file.model_copy(update={"campaign": file.campaign.model_copy(update={"simulated": None})})
    assert f"predict {directory} --h H --m M --c C\n      (its run time with other H" in following(directory, untraced)
