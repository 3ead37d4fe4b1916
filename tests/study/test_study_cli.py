"""`pagelab study`, `import` and `demo` as a user types them, with the real launcher."""

from __future__ import annotations

import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from harness.file_systems import small_file_system
from pagelab.study.budget import fewest_blocks
from pagelab.study.demo import make_inputs
from pagelab.study.planning import plan_file
from pagelab.study.store import Store

STUDY = """\
name = "small"
executions = 2
warmups = 1
baseline = "kernel"
preload = "never"

[[workload]]
name = "sort"
shell = "seq 1000 | sort -r"
stdout = "{out}/sorted"

[[workload]]
name = "loud"
command = ["sh", "-c", "echo value: 2.5 ns; echo trouble >&2"]
measure = { regex = "(?P<name>value): (?P<value>[0-9.]+) (?P<unit>ns)" }
metric = "measure.value"

[[policy]]
name = "kernel"

[[policy]]
name = "other"
env = { OTHER = "1" }
"""


def pagelab(*arguments: str | Path, cwd: Path, expect: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pagelab", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == expect, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def spec(directory: Path, text: str = STUDY) -> Path:
    path = directory / "small.toml"
    path.write_text(text)
    return path


def test_the_template_is_a_study(tmp_path: Path) -> None:
    assert "pagelab study run page-size.toml" in pagelab("study", "init", "page-size.toml", cwd=tmp_path).stdout
    shown = pagelab("study", "run", "page-size.toml", "--dry-run", "--skip-impossible", cwd=tmp_path).stdout
    assert "page-size: 8 conditions, 20 executions and 1 warm-up each, in page-size.study" in shown
    assert "gups size=64M/kernel  (baseline)" in shown
    assert [path.name for path in tmp_path.iterdir()] == ["page-size.toml"], "a dry run writes nothing"
    assert "exists; name another file" in pagelab("study", "init", "page-size.toml", cwd=tmp_path, expect=2).stderr


def test_from_run_to_report(tmp_path: Path) -> None:
    said = pagelab("study", "run", spec(tmp_path), cwd=tmp_path).stderr
    assert "12 of 12 runs done" in said
    assert "12 runs are done; see them with: pagelab report small.study" in said
    out = tmp_path / "small.study"
    with Store.open(out, write=False) as store:
        runs = store.runs()
        assert runs["status"].to_list() == ["ok"] * 12
        assert (runs["wall_s"] > 0).all()
        values = store.measurements()
        assert values.select("name", "value", "unit").unique().rows() == [("value", 2.5, "ns")]
        assert values.height == 6
        environments = {record.policy.name: record.command.env for record in store.records()}
        assert environments["other"].get("OTHER") == "1"
        assert all(record.provenance and record.machine for record in store.records())
    assert (out / "sorted").read_text().startswith("999\n998\n")
    assert list((out / "output").iterdir()) == [], "error output is kept of failed runs only"
    status = json.loads(pagelab("study", "status", out, "--json", cwd=tmp_path).stdout)
    assert (status["state"], status["done"], status["total"]) == ("complete", 12, 12)
    told = pagelab("report", out, "--format", "html", cwd=tmp_path).stdout
    assert "report: " in told
    verdict = told.splitlines()[0]
    assert verdict.endswith("not tested: 2 executions of each are too few for tests of 2 comparisons.")
    assert f"next: pagelab study resume {out} --executions 8\n" in told
    assert verdict in said.splitlines(), "the session ends with the report's verdict"
    following = next(line for line in told.splitlines() if line.startswith("next: pagelab "))
    assert following.split()[:3] == next(line for line in said.splitlines() if line.startswith("next: ")).split()[:3]
    assert "12 runs are done" in pagelab("study", "resume", out, cwd=tmp_path).stderr


@pytest.mark.by_turns(4)
def test_many_programs_of_few_executions_are_answered_as_a_set(tmp_path: Path) -> None:
    """Programs that sleep ten times as long under one policy: the session's last words and the report's first agree."""
    programs = "".join(f'[[workload]]\nname = "w{i}"\ncommand = ["sh", "-c", "sleep $LONG"]\n' for i in range(7))
    policies = "".join(
        f'[[policy]]\nname = "{name}"\nenv = {{ LONG = "{seconds}" }}\n'
        for name, seconds in (("kernel", 0.05), ("slow", 0.5))
    )
    head = 'name = "small"\nexecutions = 3\nwarmups = 0\npreload = "never"\n'
    said = pagelab("study", "run", spec(tmp_path, head + programs + policies), cwd=tmp_path).stderr
    assert "answered as a set: over 7 programs 2 comparisons can reach the level" in said
    assert "cannot reach the level" not in said
    verdict = next(line for line in said.splitlines() if line.startswith("Over 7 programs "))
    assert re.match(r"Over 7 programs slow makes runs \d\.\d+ times as long \(95% interval \d.*, p = 0\.031\)", verdict)
    told = pagelab("report", "small.study", "--format", "html", "--format", "data", cwd=tmp_path).stdout
    assert told.splitlines()[0] == verdict
    assert len((tmp_path / "small.study" / "report" / "set_programs.csv").read_text().splitlines()) == 1 + 7


@pytest.mark.by_turns(4)
def test_failed_runs_end_with_1_and_are_shown(tmp_path: Path) -> None:
    text = STUDY.replace("echo trouble >&2", "echo trouble >&2; exit 7")
    said = pagelab("study", "run", spec(tmp_path, text), cwd=tmp_path, expect=1).stderr
    assert "pagelab: 6 of 12 runs failed (they are kept); see: pagelab study status small.study" in said
    shown = pagelab("study", "status", "small.study", cwd=tmp_path).stdout
    assert "6 ok, 6 failed" in shown
    kept = sorted((tmp_path / "small.study" / "output").iterdir())
    assert [path.read_text() for path in kept] == ["trouble\n"] * 6


def test_a_dry_run_finds_what_is_missing(tmp_path: Path) -> None:
    """Regression: it ended with 0 where the run itself found no program."""
    file = spec(tmp_path, STUDY.replace('"sh", ', '"/no/such/sh", '))
    said = pagelab("study", "run", file, "--dry-run", cwd=tmp_path, expect=2).stderr
    assert ": cannot find the program /no/such/sh (directory " in said


def test_a_file_with_other_line_ends_has_not_changed(tmp_path: Path) -> None:
    """Regression: the copy in the study's own directory is the file itself, and was compared byte by byte."""
    (tmp_path / "own").mkdir()
    file = spec(tmp_path / "own", STUDY)
    file = file.rename(file.with_name("study.toml"))
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    pagelab("study", "run", file, "--into", "own", cwd=tmp_path)
    assert " runs are done" in pagelab("study", "resume", "own", "--executions", "3", cwd=tmp_path).stderr
    file.write_bytes(file.read_bytes().replace(b"executions = 2", b"executions = 4"))
    assert "changed" in pagelab("study", "resume", "own", cwd=tmp_path, expect=2).stderr


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (("executions = 2", "executons = 2"), 2, "small.toml:2: executons: unknown key; did you mean executions? "),
        (("[[policy]]\nname = \"other\"", "[[policy]]\nname = \"other\"\npages = \"3M\""), 2, 'policy "other": '),
        (("[[policy]]\nname = \"other\"", "[[policy]]\nname = \"other\"\nframes = \"bin-hopping\""), 2,
         'policy "other" cannot be applied: preload = "never" forbids'),
        (("preload =", "cpus = [4095]\npreload ="), 3, "cpus = [4095] cannot be used"),
        (("\"sh\", ", "\"/no/such/sh\", "), 2, ": cannot find the program /no/such/sh (directory "),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused_before_anything_runs(
    tmp_path: Path, change: tuple[str, str], code: int, words: str
) -> None:
    assert change[0] in STUDY
    said = pagelab("study", "run", spec(tmp_path, STUDY.replace(*change)), cwd=tmp_path, expect=code).stderr
    assert words in said
    assert not (tmp_path / "small.study").exists()


def test_policies_and_programs_that_cannot_be_are_told_at_once_with_their_lines(tmp_path: Path) -> None:
    """Regression: the policy first, without a line; with it mended the program, with neither file nor line."""
    text = STUDY.replace('name = "other"', 'name = "other"\npages = "3M"').replace('"sh", ', '"no-such-program", ')
    said = pagelab("study", "run", spec(tmp_path, text), cwd=tmp_path, expect=2).stderr
    lines = text.splitlines()
    policy = lines.index('pages = "3M"') - 1  # its table
    program = next(number for number, line in enumerate(lines, 1) if "no-such-program" in line)
    found = sorted(said.removeprefix("pagelab: ").splitlines())
    assert len(found) == 2, said
    assert f'small.toml:{policy}: policy "other": "3M" is not a page size' in said
    assert f"small.toml:{program}: cannot find the program no-such-program in PATH; run: " in said


@pytest.mark.by_turns(4)
def test_plans_and_results_that_are_mistaken_for_each_other_are_told_apart(tmp_path: Path) -> None:
    """Regression: a study.toml was "no database", its lock "Not a directory", and results were to be replaced."""
    file = spec(tmp_path, STUDY)
    for words in (("report", file), ("study", "status", file), ("study", "resume", file)):
        said = pagelab(*words, cwd=tmp_path, expect=2).stderr
        assert said == f"pagelab: {file} is no study: it is a study's plan; run it with: pagelab study run {file}\n"
    pagelab("study", "run", file, cwd=tmp_path)
    for words in (("report", file), ("study", "status", file)):
        said = pagelab(*words, cwd=tmp_path, expect=2).stderr
        assert said.endswith("it is a study's plan; its results: pagelab report small.study\n")
    said = pagelab("study", "run", "small.study", cwd=tmp_path, expect=2).stderr
    assert said.endswith("it is a study's directory; continue it with: pagelab study resume small.study\n")
    for place in (".", "nowhere"):
        said = pagelab("report", place, cwd=tmp_path, expect=2).stderr
        assert "small.study; name one of them\n" in said
    said = pagelab("study", "run", "other.toml", cwd=tmp_path, expect=2).stderr
    assert said.endswith("start one with: pagelab study init other.toml\n")


def test_there_is_nothing_to_resume(tmp_path: Path) -> None:
    for command in ("resume", "status"):
        assert "no study in nowhere" in pagelab("study", command, "nowhere", cwd=tmp_path, expect=2).stderr


LONG = """\
name = "long"
executions = 40
warmups = 0
preload = "never"
[[workload]]
name = "sleeper"
command = ["sleep", "0.05{mark}"]
[workload.parameters]
mark = ["MARK"]
[[policy]]
name = "a"
[[policy]]
name = "b"
"""


def test_killed_with_its_launcher_at_work_nothing_stays_behind_and_resume_completes(tmp_path: Path) -> None:
    """Random moments, the real launcher; the measured program must not outlive the session for long."""
    mark = f"{random.randrange(10**6, 10**7)}"  # sleep 0.05<mark>: found in /proc by its arguments
    path = spec(tmp_path, LONG.replace("MARK", mark))
    out = tmp_path / "out"
    moments = random.Random(5)
    for attempt in range(4):
        arguments = ["run", str(path), "--into", str(out)] if attempt == 0 else ["resume", str(out)]
        before = _done(out)
        process = subprocess.Popen([sys.executable, "-m", "pagelab", "study", *arguments], stderr=subprocess.DEVNULL)
        while process.poll() is None and _done(out) < before + 3:
            time.sleep(0.02)
        time.sleep(moments.uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert _vanish(f"0.05{mark}"), "the program of a killed session is still running"
    state = json.loads(pagelab("study", "status", out, "--json", cwd=tmp_path).stdout)
    assert state["state"] == "killed"
    pagelab("study", "resume", out, cwd=tmp_path)
    with Store.open(out, write=False) as store:
        assert store.runs()["position"].to_list() == list(range(80))
        assert store.runs()["status"].to_list() == ["ok"] * 80


def _done(out: Path) -> int:
    if not (out / "study.db").exists():
        return 0
    with Store.open(out, write=False) as store:
        return len(store.finished())


def _vanish(word: str) -> bool:
    for _ in range(200):
        if not any(word in _arguments(entry) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
            return True
        time.sleep(0.05)
    return False


def _arguments(entry: Path) -> list[str]:
    if int(entry.name) == os.getpid():
        return []
    try:
        return (entry / "cmdline").read_text().split("\0")
    except OSError:
        return []


@pytest.mark.by_turns(4)
def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    path, out = spec(tmp_path, LONG.replace("MARK", "1")), tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-m", "pagelab", "study", "run", str(path), "--into", str(out)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while _done(out) < 3 and process.poll() is None:
        time.sleep(0.02)
    shown = pagelab("study", "status", out, cwd=tmp_path).stdout
    assert "long: running" in shown
    assert f"process {process.pid} on " in shown
    refused = pagelab("study", "resume", out, cwd=tmp_path, expect=2).stderr
    assert f"process {process.pid} on " in refused
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to everybody in the group
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"continue with: pagelab study resume {out}" in said
    pagelab("study", "resume", out, cwd=tmp_path)
    assert _done(out) == 80
    with Store.open(out, write=False) as store:
        assert set(store.runs()["status"]) == {"ok"}, "a run that Ctrl-C ended is not a result"


@pytest.mark.by_turns(4)
def test_import_then_report(tmp_path: Path) -> None:
    rows = "".join(f"0,{70 + number}\n1,{50 + number}\n" for number in range(20))
    (tmp_path / "buffering.csv").write_text("buffering,time\n" + rows)
    said = pagelab("import", "buffering.csv", "--label", "0=off", "--label", "1=on", cwd=tmp_path).stdout
    assert "40 executions of 2 conditions, compared with off" in said
    pagelab("report", "buffering.study", "--format", "html", "--format", "data", cwd=tmp_path)
    report = tmp_path / "buffering.study" / "report"
    assert (report / "index.html").exists()
    contrast = pl.read_csv(report / "contrasts.csv").row(0, named=True)
    assert contrast["p"] == pytest.approx(2 / math.comb(40, 20), rel=1e-12), "fully separated: 1.451e-11"


def test_the_demo_is_a_study_that_fits_its_budget(tmp_path: Path) -> None:
    made = plan_file(make_inputs(tmp_path / "inputs"), tmp_path)
    assert made.minutes == 5
    assert {"python", "sort"} <= {condition.workload for condition in made.conditions}
    by_workload: dict[str, set[str]] = {}
    for condition in made.conditions:
        by_workload.setdefault(condition.workload, set()).add(condition.policy)
    assert by_workload["gups"] == {"kernel", "2M"}
    assert by_workload["btree"] == {"kernel", "2M", "mosaic"}
    assert by_workload["scan"] == {"kernel", "willneed"}
    assert all(c.request.flush.mode == "files" for c in made.conditions if c.workload.startswith("scan"))
    pilot = fewest_blocks(made) + made.warmups
    assert len(made.conditions) * pilot * 0.6 < 150, "half of the time at 0.6 s a run"


@pytest.mark.slow
def test_the_demo_ends_with_a_report(tmp_path: Path) -> None:
    said = pagelab("demo", "--out", "out", "--executions", "1", cwd=tmp_path).stdout
    # What disturbed the machine may be told below it.
    assert any(line.startswith("report: ") and line.endswith("out/report/index.html") for line in said.splitlines())
    assert "continuing the study in out" in pagelab("demo", "--out", "out", cwd=tmp_path).stdout


@pytest.fixture
def filling(tmp_path: Path) -> Iterator[Path]:
    """A file system that has room for a study, but not for 100 MB more."""
    with small_file_system(tmp_path / "filling", "80m") as place:
        yield place


@pytest.mark.by_turns(4)
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a tmpfs; run: sudo make test")
def test_a_disk_that_fills_within_a_study_loses_the_run_in_progress_and_nothing_else(filling: Path) -> None:
    """The third run fills it. Tear-downs are done all the same, and the study goes on where there is room again."""
    fill = "test $(wc -l < {out}/log) = 3 && head -c 100M /dev/zero > filler; true"
    text = f"""\
name = "small"
executions = 3
warmups = 0
preload = "never"
setup = "touch begun"
teardown = "rm begun"

[[workload]]
name = "fills"
shell = "echo run >> {{out}}/log; {fill}"

[[policy]]
name = "kernel"

[[policy]]
name = "other"
env = {{ OTHER = "1" }}
"""
    spec(filling, text)
    told = pagelab("study", "run", "small.toml", "--into", "s", cwd=filling, expect=3).stderr
    assert "No space left on device (errno 28); 2 runs are kept" in told
    assert "make room (see: df -h s), then continue with: pagelab study resume s" in told
    assert not (filling / "begun").exists()
    assert "or its disk was full" in pagelab("study", "status", "s", cwd=filling).stdout
    assert "No space left on device (errno 28)" in pagelab("study", "resume", "s", cwd=filling, expect=2).stderr
    (filling / "filler").unlink()
    pagelab("study", "resume", "s", cwd=filling)
    with Store.open(filling / "s", write=False) as store:
        assert store.rows("PRAGMA integrity_check") == [("ok",)]
        assert store.rows("SELECT status, count(*) FROM run GROUP BY status") == [("ok", 6)]
        assert store.rows("SELECT count(*) FROM attempt WHERE outcome = 'interrupted'") == [(1,)]
