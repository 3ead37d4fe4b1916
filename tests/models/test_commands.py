"""From a table to a prediction, as a user types it."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from models.planted import DIGITISED, points
from pagelab.models.answer import ModelReport
from pagelab.models.document import ModelFile
from pagelab.models.prediction import Prediction


def pagelab(directory: Path, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "pagelab", *words],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == code, f"{words}: {done.stdout}{done.stderr}"
    return done


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with ``w.model``, fitted: 24 layouts of a made-up workload, three repeats each, 6 of them to test."""
    directory = tmp_path_factory.mktemp("model")
    data = points(24, rule="kink", noise=0.002)
    random = np.random.default_rng(1)
    assert data.h is not None
    assert data.m is not None
    with (directory / "w.csv").open("w", newline="") as out:
        table = csv.writer(out)
        table.writerow(["layout", "role", "walk_cycles", "stlb_hits", "stlb_misses", "cpu-cycles"])
        for i in range(24):
            name = {0: "layout4kb", 23: "layout2mb"}.get(i, f"layout{i}")
            for _ in range(3):
                r = data.r[i] * (1 + 0.003 * random.normal())
                table.writerow([name, "test" if i % 4 == 2 else "train", data.c[i], data.h[i], data.m[i], r])
    said = pagelab(directory, "model", "import", "w.csv").stdout
    assert "18 layouts to fit, 6 to test; R, H, M, C, counted" in said
    assert "next: pagelab model fit w.model" in said
    pagelab(directory, "model", "fit", "w.model", "--folds", "3")
    return directory


def test_the_report_begins_with_a_verdict_and_has_the_papers_figures(fitted: Path) -> None:
    lines = pagelab(fitted, "model", "report", "w.model").stdout.splitlines()
    assert lines[0].startswith("the run time of w is predicted within ")
    assert "% by gp on test layouts (mosmodel " in lines[0]
    assert "the noise of the repeats alone would show" in lines[0]
    rows = {line.split()[0]: line.split() for line in lines[2:14]}
    assert "192.0%" in rows["basu"]
    assert "4.3%" in rows["mosmodel"]
    assert any(line.startswith("yaniv: R = ") for line in lines)


@pytest.mark.by_turns(4)
def test_json_is_what_the_schemas_say(fitted: Path) -> None:
    report = ModelReport.model_validate_json(pagelab(fitted, "model", "report", "w.model", "--json").stdout)
    assert [one.fit.model for one in report.models][-1] == "gp"
    assert (report.layouts, report.test_layouts, report.folds) == (18, 6, 3)
    file = ModelFile.model_validate_json((fitted / "w.model").read_text())
    assert file.fits is not None
    assert [one.fit for one in report.models] == file.fits.models
    again = pagelab(fitted, "model", "fit", "w.model", "--folds", "3", "--json").stdout
    assert ModelReport.model_validate_json(again) == report
    imported = pagelab(fitted, "model", "import", "w.csv", "--into", "x.model", "--json").stdout
    assert ModelFile.model_validate_json(imported).layouts == file.layouts


@pytest.mark.by_turns(4)
def test_the_page_stands_alone_beside_its_figures(fitted: Path) -> None:
    said = pagelab(fitted, "model", "report", "w.model", "--out", "page").stdout
    assert f"report: {fitted.resolve()}/page/index.html" in said
    page = (fitted / "page/index.html").read_text()
    assert "How well do TLB counts predict the run time of <code>w</code>?" in page
    for name in ("errors", "measured-predicted", "residuals"):
        assert (fitted / f"page/{name}.svg").read_text().startswith("<svg")
        assert f'data-chart="{name}"' in page
    assert "http://" not in page.split("<script")[0]
    rows = list(csv.DictReader((fitted / "page/layouts.csv").read_text().splitlines()))
    assert len(rows) == 24
    assert float(rows[0]["predicted_yaniv"]) == pytest.approx(float(rows[0]["r"]))
    pagelab(fitted, "model", "report", "w.model", "--out", "page")
    (fitted / "other").mkdir()
    (fitted / "other/mine").touch()
    refused = pagelab(fitted, "model", "report", "w.model", "--out", "other", code=2)
    assert "it holds something else" in refused.stderr


@pytest.mark.by_turns(4)
def test_predictions_have_an_interval_and_warn_beyond_the_layouts(fitted: Path) -> None:
    layout = ModelFile.model_validate_json((fitted / "w.model").read_text()).layouts[9]
    near = {"--h": layout.h, "--m": layout.m, "--c": layout.c}
    asked = ("predict", "w.model", *(word for option, value in near.items() for word in (option, f"{value * 1.01:g}")))
    mean = Prediction.model_validate_json(pagelab(fitted, *asked, "--json").stdout)
    one = Prediction.model_validate_json(pagelab(fitted, *asked, "--run", "--json").stdout)
    assert mean.low is not None
    assert mean.high is not None
    assert one.low is not None
    assert one.low < mean.low < mean.r < mean.high
    assert (mean.of, one.of, mean.warnings) == ("mean", "run", [])
    text = pagelab(fitted, *asked).stdout
    assert "95% interval for a layout's mean: " in text
    far = pagelab(fitted, "predict", "w.model", "--h", "1e9", "--m", "5e8", "--c", "9e10").stdout
    walks = [one.c for one in ModelFile.model_validate_json((fitted / "w.model").read_text()).layouts]
    times = (9e10 - max(walks)) / (max(walks) - min(walks))
    assert "warning: C = 9.000e10 lies outside the layouts that were fitted" in far
    told = re.search(r"C = 9.000e10 .*?, by (\S+)(%| times)", far)
    assert told is not None
    assert float(told[1]) / (100 if told[2] == "%" else 1) == pytest.approx(times, rel=0.05)
    # H, M and C each within their range, and nothing like it together.
    apart = pagelab(fitted, "predict", "w.model", "--h", "1e9", "--m", "9.5e8", "--c", "1e9").stdout
    assert "no layout that was fitted has such H, M, C together" in apart
    line = Prediction.model_validate_json(pagelab(fitted, *asked, "--model", "yaniv", "--json").stdout)
    assert (line.low, line.high) == (None, None)
    assert [one.message for one in line.warnings] == [
        "--h and --m change nothing: yaniv, as fitted to this file, does not use H and M"
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("predict", "w.model", "--c", "1e9"), "it needs H; add --h NUMBER"),
        (("predict", "w.model", "--h", "1", "--m", "1", "--c", "-1"), "--c -1: not within 0 ... 1e+30"),
        (("predict", "w.model", "--c", "1e9", "--model", "bosu"), "model bosu: unknown; allowed: basu, "),
        (("predict", "w.model", "--c", "1e9", "--level", "2"), "--level 2.0: not within 0.5 ... 0.9999"),
        (("model", "fit", "w.model", "--folds", "99"), "--folds 99: not within 2 ... 18"),
        (("model", "fit", "w.model", "--model", "lasso"), "model lasso: unknown"),
        (("model", "import", "w.csv"), "it exists; replace it with --force"),
        (("model", "import", "w.csv", "--into", "n.model", "--source", "guessed"), "allowed: counted, simulated"),
        (("model", "import", "w.csv", "--into", "n.model", "--where", "role"), "write it as KEY=VALUE"),
        (("model", "report", "none.model"), "it does not exist; make it with: pagelab model run --into "),
    ],
)
def test_bad_input_is_answered_with_what_is_allowed(fitted: Path, words: tuple[str, ...], message: str) -> None:
    assert message in pagelab(fitted, *words, code=2).stderr
    assert not (fitted / "n.model").exists()


@pytest.mark.parametrize("force", [(), ("--force",)], ids=["", "force"])
def test_an_import_never_goes_into_a_campaigns_directory(force: tuple[str, ...], fitted: Path) -> None:
    """Regression: gups.csv proposed --force for gups.model, which replaced the model of ``model run -- ./gups``."""
    (fitted / "g.model").mkdir()
    (fitted / "g.model/campaign.json").touch()
    (fitted / "g.csv").write_text((fitted / "w.csv").read_text())
    told = "--into g.model: it is the directory of a campaign; choose another: --into NAME.model"
    assert told in pagelab(fitted, "model", "import", "g.csv", *force, code=2).stderr
    assert [path.name for path in (fitted / "g.model").iterdir()] == ["campaign.json"]
    shutil.rmtree(fitted / "g.model")


@pytest.mark.by_turns(4)
def test_nothing_is_reported_before_it_is_fitted(tmp_path: Path) -> None:
    pagelab(tmp_path, "model", "import", str(DIGITISED), "--where", "machine=skylake", "--into", "s.model")
    assert "run: pagelab model fit s.model" in pagelab(tmp_path, "model", "report", "s.model", code=2).stderr
    said = pagelab(tmp_path, "model", "fit", "s.model", "--model", "poly3", "--model", "basu").stdout
    assert said.startswith("the run time of gups-1gib-digitised is predicted within 3.5% by poly3 on layouts left out")
    assert "not fitted: cannot fit basu to gups-1gib-digitised: it needs M" in said
    refused = pagelab(tmp_path, "predict", "s.model", "--c", "1e10", "--run", code=2)
    assert "the spread over repeats is not known" in refused.stderr
