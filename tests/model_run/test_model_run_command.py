"""``pagelab model run`` and ``predict --processor`` as a newcomer types them, on a real program."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pagelab import paths
from pagelab.schemas import json_schema

pytestmark = pytest.mark.needs_page_sizes

PROGRAM = [str(paths.workload()), "gups", "--bytes", "48M", "--updates", "100000"]
OPTIONS = ["--minutes", "0.9", "--layouts", "10", "--select", "random", "--processor", "zen-3", "--into", "g.model"]


@pytest.fixture(autouse=True)
def _able() -> None:
    if not Path("/sys/kernel/mm/transparent_hugepage/enabled").exists():
        pytest.skip("this kernel has no transparent huge pages; boot one built with THP")
    if shutil.which("qemu-x86_64") is None:
        pytest.skip("no emulator: install qemu-user (apt install qemu-user)")


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "pagelab", *map(str, words)]


def run(cwd: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*words), capture_output=True, text=True, cwd=cwd, check=False)


def finished(directory: Path) -> list[tuple[str, int, str]]:
    """Study, place and beginning of every finished execution."""
    found = []
    for store in sorted(directory.glob("*/study.db")):
        connection = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
        rows = connection.execute("SELECT position, started_at FROM run ORDER BY position").fetchall()
        found += [(store.parent.name, *row) for row in rows]
        connection.close()
    return found


@pytest.mark.slow
def test_from_a_command_to_a_model_through_a_kill(tmp_path: Path) -> None:
    """With real executions; test_model_run and test_kinds have its parts every day."""
    asked = ["model", "run", *OPTIONS, "--counts", "simulated", "--", *PROGRAM]
    directory = tmp_path / "g.model"
    began = subprocess.Popen(
        command(*asked), cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    deadline = time.monotonic() + 120
    while len([one for one in finished(directory) if one[0] == "round-1"]) < 5:
        assert began.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(began.pid, signal.SIGKILL)
    began.wait()
    before = finished(directory)
    unfinished = run(tmp_path, "model", "report", "g.model")
    assert unfinished.returncode == 2
    assert "goes on with: pagelab model run" in unfinished.stderr
    done = run(tmp_path, *asked)
    assert done.returncode == 0, done.stderr
    after = finished(directory)
    assert set(before) <= set(after)
    assert len(after) > len(before)
    lines = done.stdout.splitlines()
    assert "in 2M pages alone it takes" in lines[0]
    assert any(line.startswith("perfect, under this noise") for line in lines)
    assert any(line.startswith("H, M, C: simulated (zen-3; asked for)") for line in lines)
    assert any(line.startswith("R: processor time of the window work, the median of the repeats;") for line in lines)
    assert "next: pagelab model report g.model" in done.stdout
    report = run(tmp_path, "model", "report", "g.model", "--json")
    told = json.loads(report.stdout)
    assert told["source"] == "simulated"
    assert (told["layouts"], told["test_layouts"]) == (10, 12)
    assert told["floor_test"]["maximum"] > 0
    refitted = run(tmp_path, "model", "fit", "g.model", "--model", "poly1")
    assert refitted.returncode == 0, refitted.stderr
    # Another TLB, the training's own pages, and what cannot be.
    other = run(tmp_path, "predict", "g.model", "--processor", "haswell", "--pages", "2M", "--json")
    prediction = json.loads(other.stdout)
    assert (prediction["processor"], prediction["pages"]) == ("haswell", "2M")
    assert prediction["low"] < prediction["r"] < prediction["high"]
    stores = run(tmp_path, "predict", "g.model", "--processor", "ice-lake-server")
    assert stores.returncode == 2
    assert "pagelab model run --references" in stores.stderr


def test_the_campaigns_file_is_as_published(tmp_path: Path) -> None:
    from pagelab.model_run.document import Campaign

    planned = run(tmp_path, "model", "run", *OPTIONS, "--dry-run", "--json", "--", *PROGRAM)
    assert planned.returncode == 0, planned.stderr
    plan = json.loads(planned.stdout)
    assert plan["layouts"] == 10
    assert plan["executions"] == plan["repeats"] * 22
    assert plan["run_sd"] > 0
    text = (tmp_path / "g.model/campaign.json").read_text()
    assert Campaign.model_validate_json(text).rounds == []
    assert set(json.loads(text)) == set(json.loads(json_schema(Campaign))["properties"])
    again = run(tmp_path, "model", "run", *OPTIONS, "--dry-run", "--", *PROGRAM)
    assert again.stdout.startswith(f"plan: 10 layouts and 12 test layouts, {plan['repeats']} executions of each")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--select", "best"], "--select best: allowed: adaptive, moselect, profile, random"),
        (["--counts", "guessed"], "--counts guessed: allowed: auto, measured, simulated"),
        (["--estimator", "minimum"], "--estimator minimum: allowed: mean, median, low-quantile"),
        (["--tests", "5"], "--tests 5: not within 12 ... 200; fewer judge nothing"),
        (["--layouts", "4"], "--layouts 4: not within 8 ... 200; fewer fit no model"),
        (["--minutes", "0"], "--minutes 0: not within 0.05"),
        (["--processor", "pentium-9"], "no processor is called pentium-9; allowed: "),
    ],
)
def test_bad_options_are_heard(options: list[str], told: str, tmp_path: Path) -> None:
    done = run(tmp_path, "model", "run", *options, "--", str(paths.workload()), "gups", "--bytes", "16M")
    assert done.returncode == 2
    assert told in done.stderr


def test_a_program_of_a_few_pages_has_no_layouts(tmp_path: Path) -> None:
    done = run(tmp_path, "model", "run", "--minutes", "0.3", "--counts", "simulated", "--", "true")
    assert done.returncode in (2, 3)
    assert "pagelab: " in done.stderr
    assert "Traceback" not in done.stderr
