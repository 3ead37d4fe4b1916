"""Results measured elsewhere: PREPAGE's CSV and hyperfine's JSON become studies like any other."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from harness.packages import need
from pagelab.analysis import analyse, load
from pagelab.study.control import resume_study
from pagelab.study.errors import SpecError, StudyError
from pagelab.study.imported import Columns, guess_format, import_into, metric_of, read_csv, read_hyperfine
from pagelab.study.status import status_of
from pagelab.study.store import Store


def buffering(directory: Path) -> Path:
    """A file in the form of PREPAGE's example: 20 runs a condition, shuffled, every "off" slower than every "on"."""
    rows = [f"0,{65.2 + number * 0.3:.3f}" for number in range(20)]
    rows += [f"1,{57.8 + number * 0.2:.3f}" for number in range(20)]
    random.Random(2009).shuffle(rows)
    path = directory / "buffering.csv"
    path.write_text("buffering,time\n" + "\n".join(rows) + "\n")
    return path


def test_prepage_style_csv(tmp_path: Path) -> None:
    path = buffering(tmp_path)
    samples = read_csv(path, Columns(labels={"0": "off", "1": "on"}))
    import_into(tmp_path / "out", samples, origin=path, name="buffering", baseline="off")
    with Store.open(tmp_path / "out", write=False) as store:
        runs = store.runs()
        assert runs["policy"].to_list() == ["off" if line[0] == "0" else "on" for line in path.read_text().split()[1:]]
        assert runs["wall_s"].to_list() == [float(line.split(",")[1]) for line in path.read_text().split()[1:]]
        assert runs["imported"].all()
        for unknown in ("user_s", "started_at", "duration_s", "peak_rss_bytes", "minor_faults"):
            assert runs[unknown].null_count() == 40, f"{unknown} is not known, and not 0"
        conditions = store.conditions()
        assert dict(conditions.select("policy", "baseline").iter_rows()) == {"off": True, "on": False}
        assert conditions["workload"].unique().to_list() == ["buffering"]
        assert list(store.records()) == []
        first = json.loads(next(iter(store.record_texts()))[1])
        assert (first["schema"], first["place"]) == ("pagelab.imported/1", "line 2")
        assert store.meta()["origin"] == str(path)
    assert status_of(tmp_path / "out").state == "imported"


@pytest.mark.parametrize("form", ["hyperfine", "sorted", "shuffled"])
def test_executions_that_were_not_in_turns_are_told(tmp_path: Path, form: str) -> None:
    """Regression: a machine that drifted by 3% between the commands of a hyperfine run gave "1.5% slower", p = 9e-7,
    without a caveat.
    """
    times = [[10 + number / 100 + side for number in range(20)] for side in (0, 1)]
    if form == "hyperfine":
        path = tmp_path / "r.json"
        path.write_text(json.dumps({"results": [{"command": c, "times": t} for c, t in zip("ab", times, strict=True)]}))
        samples = read_hyperfine(path)
    else:
        rows = [f"{label},{time}" for label, of_side in zip("ab", times, strict=True) for time in of_side]
        if form == "shuffled":
            random.Random(3).shuffle(rows)
        path = tmp_path / "r.csv"
        path.write_text("\n".join(["label,time", *rows]))
        samples = read_csv(path, Columns())
    import_into(tmp_path / "out", samples, origin=path, name="r", baseline="a")
    with Store.open(tmp_path / "out", write=False) as store:
        found = analyse(load(store))
    told = [caveat for caveat in found.caveats if caveat.startswith("The executions were not in turns")]
    assert len(told) == (form != "shuffled")
    if told:
        assert f"in {path.name} all of a come before those of b." in told[0]
        assert told[0].endswith("to have them in turns: pagelab compare 'COMMAND A' 'COMMAND B'.")


@pytest.mark.parametrize("count", [3_300])
def test_thousands_of_executions_are_reported(tmp_path: Path, count: int) -> None:
    """Regression: the report of 3,300 against 3,300 imported executions ended with "a fault of pagelab itself"."""
    draw = random.Random(1)
    rows = [f"{label},{factor * draw.lognormvariate(0, 0.1)}" for _ in range(count) for label, factor in TWO_LABELS]
    path = tmp_path / "big.csv"
    path.write_text("\n".join(["label,time", *rows]))
    import_into(tmp_path / "out", read_csv(path, Columns()), origin=path, name="big", baseline="a")
    with Store.open(tmp_path / "out", write=False) as store:
        found = analyse(load(store))
    (contrast,) = found.planned()
    assert contrast.verdict == "higher"
    assert contrast.relative == pytest.approx(0.02, abs=0.01)
    assert contrast.relative_any_shape is not None


TWO_LABELS = (("a", 1.0), ("b", 1.02))


def test_more_factors_become_workload_labels(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("size,seconds,pages,program\n64M,1.5,4K,gups\n64M,1.0,2M,gups\n1G,9,4K,gups\n1G,3,2M,gups\n")
    samples = read_csv(path, Columns(time="seconds", factor="pages", workload="program"))
    assert [(sample.workload, sample.policy) for sample in samples] == [
        ("gups size=64M", "4K"),
        ("gups size=64M", "2M"),
        ("gups size=1G", "4K"),
        ("gups size=1G", "2M"),
    ]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "must name each column"),
        ("time\n1\n", 1, "must name each column"),
        ("a,a\n1,2\n", 1, "must name each column"),
        ("a,time\n", None, "no rows"),
        ("a,time\n1,2\n1,fast\n", 3, '"fast" is no time in seconds'),
        ("a,time\n1,-2\n", 2, '"-2" is no time'),
        ("a,time\n1,nan\n", 2, '"nan" is no time'),
        ("a,time\n1\n", 2, "where the header has 2"),
        ("a,time\n1,2,3\n", 2, "where the header has 2"),
    ],
)
def test_bad_csv_is_refused_with_its_line(tmp_path: Path, text: str, line: int | None, words: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        read_csv(path, Columns())
    assert str(caught.value).startswith(f"{path}:" if line is None else f"{path}:{line}:")
    assert words in str(caught.value)


def test_unknown_columns_and_baselines_are_refused(tmp_path: Path) -> None:
    path = buffering(tmp_path)
    with pytest.raises(SpecError, match='no column "tme"; allowed: buffering, time'):
        read_csv(path, Columns(time="tme"))
    with pytest.raises(StudyError, match='no level is called "off"; allowed: '):
        import_into(tmp_path / "out", read_csv(path, Columns()), origin=path, name="b", baseline="off")
    assert not (tmp_path / "out").exists()


def test_hyperfine_itself(tmp_path: Path) -> None:
    """What the installed hyperfine writes, not what we think it writes."""
    path = tmp_path / "h.json"
    options = ["-N", "--runs", "3", "--warmup", "0", "--export-json", str(path), "-i"]
    command = [need("hyperfine"), *options, "true", "false"]
    subprocess.run(command, check=True, capture_output=True)
    written = json.loads(path.read_text())["results"]
    assert guess_format(path) == "hyperfine"
    samples = read_hyperfine(path)
    import_into(tmp_path / "out", samples, origin=path, name="h")
    with Store.open(tmp_path / "out", write=False) as store:
        runs = store.runs()
        assert runs["wall_s"].to_list() == [value for result in written for value in result["times"]]
        assert runs["policy"].to_list() == ["true"] * 3 + ["false"] * 3
        assert runs["status"].to_list() == ["ok"] * 3 + ["failed"] * 3
        assert runs["exit_code"].to_list() == [0] * 3 + [1] * 3


@pytest.mark.parametrize("text", ["{}", "[]", "{", '{"results": [{"times": [1]}]}', '{"results": []}'])
def test_what_hyperfine_did_not_write_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "h.json"
    path.write_text(text)
    with pytest.raises(SpecError, match=r"hyperfine|no times"):
        read_hyperfine(path)


def test_an_imported_study_is_neither_continued_nor_overwritten(tmp_path: Path) -> None:
    from fakes import tools

    path = buffering(tmp_path)
    samples = read_csv(path, Columns())
    import_into(tmp_path / "out", samples, origin=path, name="b")
    report = f"see it with: pagelab report {tmp_path}/out$"
    with pytest.raises(StudyError, match=f"was imported from .*; {report}"):
        resume_study(tmp_path / "out", tools())
    with pytest.raises(StudyError, match=f"already holds a study; {report}") as refused:
        import_into(tmp_path / "out", samples, origin=path, name="b")
    assert refused.value.another_would_do


def imported(tmp_path: Path, text: str, *words: str) -> str:
    """What ``pagelab import`` of a CSV says."""
    (tmp_path / "t.csv").write_text(text)
    command = [sys.executable, "-m", "pagelab", "import", "t.csv", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout


def test_a_guessed_column_and_a_single_condition_are_told(tmp_path: Path) -> None:
    """Regression: any last column was taken for seconds, and one condition was "compared with" itself."""
    assert imported(tmp_path, "a,b\n1,2\n").splitlines() == [
        'seconds are taken from the last column, "b"; another: --time COLUMN',
        "warning: only one condition (t/1): nothing to compare; another factor: --factor COLUMN",
        "1 execution of 1 condition; see them with: pagelab report t.study",
    ]
    assert imported(tmp_path, "a,time\nx,2\ny,2\n", "--into", "two").splitlines() == [
        "2 executions of 2 conditions, compared with x; see them with: pagelab report two"
    ]


def test_few_imported_executions_are_told_with_their_number(tmp_path: Path) -> None:
    """Regression: "None executions of each are too few for a test"."""
    path = tmp_path / "t.csv"
    path.write_text("policy,time\na,1\na,1.1\na,1.2\nb,2\nb,2.1\nb,2.2\n")
    import_into(tmp_path / "out", read_csv(path, Columns()), origin=path, name="t")
    with Store.open(tmp_path / "out", write=False) as store:
        found = analyse(load(store))
    assert "not tested: 3 executions of each are too few for a test." in found.headline


def measured_inside(directory: Path, seed: int, column: str = "execution") -> Path:
    """Two equal policies, 8 executions of 20 measurements; executions differ by 5%, measurements inside by 1%."""
    draw = random.Random(seed)
    rows = []
    for policy in ("4K", "2M"):
        for execution in range(8):
            level = draw.gauss(100, 5)
            rows += [f"{policy},{execution},{number},{level + draw.gauss(0, 1):.4f}" for number in range(20)]
    path = directory / f"inside{seed}{column}.csv"
    path.write_text(f"policy,{column},measurement,time\n" + "\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize("column", ["execution", "Run"])
def test_measurements_of_an_execution_are_imported_as_such(tmp_path: Path, column: str) -> None:
    """Before, each was an execution of its own, and executions a factor, each "program" of which seemed to differ."""
    path = measured_inside(tmp_path, 1, column)
    samples = read_csv(path, Columns())
    assert metric_of(samples) == "measure.time"
    plan = import_into(tmp_path / "out", samples, origin=path, name="r", metric=metric_of(samples))
    assert [(one.workload, one.policy) for one in plan.conditions] == [(path.stem, "4K"), (path.stem, "2M")]
    with Store.open(tmp_path / "out", write=False) as store:
        runs, measurements = store.runs(), store.measurements()
        assert runs.height == 16
        assert runs["wall_s"].null_count() == 16
        assert measurements.height == 320
        first = measurements.filter(measurements["run_id"] == runs["run_id"][0]).sort("idx")["value"].to_list()
        assert first == [float(line.split(",")[3]) for line in path.read_text().split()[1:21]]
        assert json.loads(next(iter(store.record_texts()))[1])["place"] == "line 2 to 21"


def test_equal_programs_seldom_differ_after_import(tmp_path: Path) -> None:
    """Of ten files, all ten differed before."""
    from pagelab.analysis.build import analyse
    from pagelab.analysis.data import load

    differing = 0
    for seed in range(10):
        path = measured_inside(tmp_path, seed)
        samples = read_csv(path, Columns())
        import_into(tmp_path / f"out{seed}", samples, origin=path, name="r", metric=metric_of(samples))
        with Store.open(tmp_path / f"out{seed}", write=False) as store:
            found = analyse(load(store))
        differing += any(one.verdict in ("lower", "higher") for one in found.contrasts)
    assert differing <= 2  # of ten at 5%: more in 1% of cases


def test_one_row_an_execution_is_what_it_was(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("policy,execution,time\n4K,1,1.5\n2M,1,1.0\n4K,2,1.6\n2M,2,1.1\n")
    samples = read_csv(path, Columns())
    assert [(one.workload, one.policy, one.run.wall_s) for one in samples] == [
        ("r", "4K", 1.5),
        ("r", "2M", 1.0),
        ("r", "4K", 1.6),
        ("r", "2M", 1.1),
    ]
    assert metric_of(samples) == "wall_s"


def test_numbers_of_measurements_need_executions(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("policy,iteration,time\n4K,1,1.5\n4K,2,1.0\n")
    with pytest.raises(SpecError, match="name the column of their executions"):
        read_csv(path, Columns())
    path.write_text("policy,pid,iteration,time\n4K,7,1,1.5\n4K,7,2,1.0\n")
    assert len(read_csv(path, Columns(execution="pid"))) == 1
    with pytest.raises(SpecError, match="has another meaning"):
        read_csv(path, Columns(factor="pid", execution="pid"))


def test_a_command_that_was_timed_twice_is_compared_with_itself(tmp_path: Path) -> None:
    """Before, the two were merged into one condition without a word."""
    path = tmp_path / "h.json"
    results = [
        {"command": "sort a", "times": [1.0, 1.1, 1.2]},
        {"command": "sort b", "times": [2.0, 2.1, 2.2]},
        {"command": "sort a", "times": [1.3, 1.1, 1.0]},
        {"command": "size", "times": [1.0], "parameters": {"n": 1}},
        {"command": "size", "times": [2.0], "parameters": {"n": 2}},
    ]
    path.write_text(json.dumps({"results": results}))
    samples = read_hyperfine(path)
    assert list(dict.fromkeys(one.policy for one in samples)) == [
        "sort a #1",
        "sort b",
        "sort a #2",
        "size n=1",
        "size n=2",
    ]
