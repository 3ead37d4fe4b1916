"""Results measured elsewhere: PREPAGE's CSV and hyperfine's JSON become studies like any other."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest

from harness.packages import need
from pagelab.study.control import resume_study
from pagelab.study.errors import SpecError, StudyError
from pagelab.study.imported import Columns, guess_format, import_into, read_csv, read_hyperfine
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
    with pytest.raises(StudyError, match="was imported from"):
        resume_study(tmp_path / "out", tools())
    with pytest.raises(StudyError, match="already holds a study"):
        import_into(tmp_path / "out", samples, origin=path, name="b")
