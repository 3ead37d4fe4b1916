"""Tables and model files: what is read, what is refused, and that nothing is lost on the way."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from models.planted import DIGITISED, points
from pagelab.errors import BadInputError
from pagelab.models import judge, models
from pagelab.models.answer import told_of
from pagelab.models.document import file_of, fits_of, read, write
from pagelab.models.importing import Reading, read_csv
from pagelab.models.prediction import predict

MEAN = """,layout,walk_cycles,stlb_hits,stlb_misses,cpu-cycles
0,layout4kb,9e9,4e8,2e8,4e10
1,layout2mb,1e9,1e8,1e7,3e10
2,layout1,5e9,3e8,1e8,3.5e10
"""
PERF = """layout,cpu-cycles,dtlb_load_misses.walk_active,dtlb_store_misses.walk_active,\
dtlb_load_misses.stlb_hit,dtlb_store_misses.stlb_hit,dtlb_load_misses.walk_completed,dtlb_store_misses.walk_completed
layout4kb,4e10,8e9,1e9,3e8,1e8,1.5e8,5e7
layout2mb,3e10,9e8,1e8,9e7,1e7,9e6,1e6
"""


def table(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mean.csv"
    path.write_text(text)
    return path


def test_mosmodels_table_is_read_by_its_names(tmp_path: Path) -> None:
    found = read_csv(table(tmp_path, MEAN))
    assert found.layouts == ("layout4kb", "layout2mb", "layout1")
    assert found.anchors == {"4K": "layout4kb", "2M": "layout2mb"}
    assert (found.r[0], found.c[0], found.workload, found.cycles) == (4e10, 9e9, "mean", "sum")
    assert found.h is not None
    assert found.m is not None
    assert (found.h[1], found.m[1]) == (1e8, 1e7)


def test_loads_and_stores_of_perf_are_added_up(tmp_path: Path) -> None:
    found = read_csv(table(tmp_path, PERF))
    assert found.h is not None
    assert found.m is not None
    assert (found.h[0], found.m[0], found.c[0], found.cycles) == (4e8, 2e8, 9e9, "active")


def test_rows_of_runs_with_columns_of_means_are_refused(tmp_path: Path) -> None:
    """Regression: the columns were ignored, and one row that was there twice made the noise of all others unknown."""
    text = "layout,R,C,r_sd,repeats\na,10,1,0.1,50\nb,20,2,0.1,50\nb,21,2,0.1,50\n"
    with pytest.raises(BadInputError, match=r"layout b has two rows, .* the columns r_sd and repeats say"):
        read_csv(table(tmp_path, text))


def test_repeats_that_are_no_number_are_refused_by_layout(tmp_path: Path) -> None:
    """Regression: a model with -9223372036854775808 repeats."""
    text = "layout,R,C,r_sd,repeats\na,10,1,0.1,5\nb,20,2,0.1,nan\n"
    with pytest.raises(BadInputError, match="repeats of b is nan"):
        read_csv(table(tmp_path, text))


def test_active_cycles_are_known_in_capitals(tmp_path: Path) -> None:
    """Regression: they were taken for the sum over all walkers, and for possible up to twice the run time."""
    text = PERF.replace("dtlb_load_misses.walk_active", "DTLB_LOAD_MISSES.WALK_ACTIVE")
    assert read_csv(table(tmp_path, text)).cycles == "active"
    named = Reading(columns={"c": "DTLB_LOAD_MISSES.WALK_ACTIVE"})
    assert read_csv(table(tmp_path, text), named).cycles == "active"


def test_rows_of_one_layout_are_its_repeats(tmp_path: Path) -> None:
    text = "layout,R,C,role\na,10,1,train\na,14,3,train\nb,20,2,test\nb,26,2,test\nb,23,2,test\n"
    found = read_csv(table(tmp_path, text))
    assert list(found.r) == [12, 23]
    assert list(found.c) == [2, 2]
    assert found.r_sd is not None
    assert found.r_se is not None
    assert list(found.r_sd) == [np.std([10, 14], ddof=1), np.std([20, 26, 23], ddof=1)]
    spread = ((8 / 12**2 + 2 * 9 / 23**2) / 3) ** 0.5
    assert found.r_se == pytest.approx([12 * spread / 2**0.5, 23 * spread / 3**0.5])
    assert found.roles == ("train", "test")


def test_a_table_of_two_machines_is_read_one_at_a_time() -> None:
    found = read_csv(DIGITISED, Reading(where={"machine": "skylake"}))
    assert len(found) == 25
    assert found.r[0] == 1.0797e10


@pytest.mark.parametrize(
    ("text", "reading", "message"),
    [
        (
            "layout,R\na,1\n",
            Reading(),
            r"no column is known to be C .*name one with --column c=NAME",
        ),
        ("layout,R,C\na,1,x\n", Reading(), r'line 2: C is "x", no number'),
        ("layout,R,C\na,1\n", Reading(), r'line 2: C is "", no number'),
        ("layout,R,C\na,1,nan\n", Reading(), "line 2: C is nan, not 0 or within"),
        ("layout,R,C\n", Reading(), "it has no row"),
        ("R,C\n1,1\n", Reading(where={"R": "2"}), "it has no row of R=2"),
        ("R,C\n1,1\n", Reading(where={"z": "2"}), "--where z=2: .*no such column"),
        ("R,C\n1,1\n", Reading(columns={"h": "hits"}), "it has no column hits"),
        ("R,C\n1,1\n", Reading(columns={"q": "R"}), "--column q=R: q is unknown; allowed: layout, role, r, h"),
        ("layout,R,C\na,1,1\n", Reading(anchors={"4K": "z"}), "--anchor-4k z: .*no such layout"),
        ("layout,R,C\na,1,1\n", Reading(tests=("z",)), "--test z: .*no such layout"),
        ("layout,R,C,c\na,1,1,2\n", Reading(), "two columns are named C and c; rename one"),
        ("layout,R,C\n" + '"a,1,1\n' + 40_000 * "b,1,1\n", Reading(), "line 2: field larger than .*; is a quote"),
        ("layout,R,C,alt\na,1,1,2\nb,nan,1,2\n", Reading(columns={"c": "alt"}), "line 3: R is nan, not within 1e-30"),
        ("layout,R,C,alt\na,1,1,2\nb,1,1,nan\n", Reading(columns={"r": "alt"}), "line 3: R is nan"),
        (
            "layout,R,C,alt\na,1,1,2\nb,1,1,-5\n",
            Reading(columns={"r": "alt"}),
            "line 3: R is -5, not within 1e-30 ... 1e[+]30; correct the line, or leave it out",
        ),
        ("layout,R,C\na,1,1\na,0,1\na,1,1\n", Reading(), "line 3: R is 0, not within"),
        ("layout,R,C\na,1,1\na,1,-1\na,1,1\n", Reading(), "line 3: C is -1, not 0 or within"),
        ("layout,R,C,H\na,1,1,1\na,1,1,inf\n", Reading(), "line 3: H is inf"),
        ("layout,R,C\na,1e300,1\n", Reading(), r"line 2: R is 1e\+300, not within 1e-30 ... 1e\+30"),
        ("layout,R,C\na,1e-310,1e-310\n", Reading(), "line 2: R is 1e-310, not within"),
        ("layout,R,C\na,9,1\na,3,7\na,9,1\n", Reading(), "line 3: C is more than R times 2 walkers; .*--walkers N"),
        ("layout,R,C\na,9,1\na,3,4\na,3,4\n", Reading(cycles="active"), r"line 3: .* than R \(and in 1 more lines\)"),
        ("layout,R,C\na,1,1\n ,2,1\n", Reading(), "line 3: its layout has no name"),
        ("layout,R,C\na,1,1\nb,1,000,1\n", Reading(), "line 3 has 4 fields, and the first line names 3 columns"),
        (
            "layout,R,C\na,1,1\nb,2,1\n",
            Reading(anchors={"4K": "a", "2M": "a"}),
            "a is named as the layout of 4K pages and as that of 2M",
        ),
        ("layout,R,C,role\na,1,1,exam\n", Reading(), r'line 2: role "exam"; allowed: train, test'),
        ("layout,R,C,role\na,1,1,test\na,2,1,train\n", Reading(), "line 3: layout a is train here and test in line 2"),
        (
            "layout,R,C,role\n4kb,1,1,test\nb,2,1,train\n",
            Reading(),
            "4kb is a test layout, .* of 4K pages; .*role train",
        ),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, text: str, reading: Reading, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        read_csv(table(tmp_path, text), reading)
    with pytest.raises(BadInputError, match="cannot import"):
        read_csv(tmp_path / "absent.csv")


def test_rows_without_layouts_that_have_equal_counts_are_repeats(tmp_path: Path) -> None:
    """Regression: each was a layout of its own, and was predicted by a model that was fitted to the others."""
    rows = "".join(f"{10 + i + j / 10},{i},{2 * i}\n" for i in range(8) for j in range(4))
    found = read_csv(table(tmp_path, "r,c,m\n" + rows))
    assert found.layouts == tuple(f"line {2 + 4 * i}" for i in range(8))
    assert found.repeats is not None
    assert list(found.repeats) == [4] * 8
    assert found.r[1] == pytest.approx(11.15)
    message = "rows of equal counts are taken for repeats, 32 rows for 8 layouts"
    file = file_of(found, tmp_path / "mean.csv")
    assert message in {one.kind: one.message for one in told_of(file)}["unnamed-layouts"]
    assert file.points().told == found.told
    means = read_csv(table(tmp_path, "r,c,r_sd,repeats\n5,1,0.1,3\n6,1,0.1,3\n"))
    assert len(means) == 2


def test_rows_without_layouts_that_have_equal_counts_and_two_roles_are_two_layouts(tmp_path: Path) -> None:
    """Regression: refused, as a layout of two roles that nobody had named."""
    rows = "".join(f"{10 + i},{i},train\n" for i in range(12))
    found = read_csv(table(tmp_path, f"r,c,role\n{rows}10.5,3,test\n10.7,3,test\n"))
    assert found.layouts[-1] == "line 14"
    assert found.roles == (*("train",) * 12, "test")
    assert "tests-like-training" in {one.kind for one in found.warnings()}
    with pytest.raises(BadInputError, match="layout a is test here and train in line 2; repeats of a layout have one"):
        read_csv(table(tmp_path, "layout,r,c,role\na,5,1,train\na,6,1,test\n"))


def test_spaces_around_a_layouts_name_are_no_other_layout(tmp_path: Path) -> None:
    """Regression: two layouts, "4K" and "4K ", none of which was the one of 4K pages."""
    text = "layout,R,C\n4K,30,9\n4K ,32,9\n 2M,20,1\n"
    found = read_csv(table(tmp_path, text), Reading(tests=(), anchors={"2M": "2M "}))
    assert found.layouts == ("4K", "2M")
    assert found.anchors == {"4K": "4K", "2M": "2M"}


def test_a_run_far_from_its_layout_is_told(tmp_path: Path) -> None:
    """Regression: one of three runs in seconds was averaged with two in cycles, and nothing was said."""
    text = "layout,R,C,H\na,9e9,9e7,3\na,3,1,90\na,9e9,1e8,3\nb,8e9,1e8,1e5\n"
    (told,) = read_csv(table(tmp_path, text)).told
    assert told.message.startswith("line 3: R is more than 10 times above or below the median of layout a, and 1 more:")
    assert read_csv(table(tmp_path, text.replace("3,1,90", "8e9,8e7,90"))).told == ()


@pytest.mark.parametrize(
    ("header", "rows", "said"),
    [
        ("layout,R,C,r_sd", "a,10,1,0.1\nb,20,2,0.1\n", "r_sd is not used, so the noise .* --column repeats=NAME"),
        ("layout,R,C,repeats", "a,10,1,3\nb,20,2,3\n", "repeats is not used, so the noise .* --column r_sd=NAME"),
        ("layout,R,C,r_sd", "a,10,1,0.1\na,11,1,0.1\n", "r_sd is not used: rows are runs"),
    ],
)
def test_a_spread_that_is_not_used_is_told(tmp_path: Path, header: str, rows: str, said: str) -> None:
    """Regression: r_sd without repeats was dropped without a word, and predict --run then asked for r_sd."""
    (told,) = read_csv(table(tmp_path, f"{header}\n{rows}")).told
    assert re.search(said, told.message)


def test_only_the_first_column_may_be_unnamed(tmp_path: Path) -> None:
    """Regression: with a comma at the end of each line the empty last column was the layout of all rows."""
    found = read_csv(table(tmp_path, "r,c,m,\n30,9,3,\n20,1,2,\n"))
    assert found.layouts == ("line 2", "line 3")
    assert read_csv(table(tmp_path, ",r,c,\na,30,9,\nb,20,1,\n")).layouts == ("a", "b")
    with pytest.raises(BadInputError, match="it has: r, column 2"):
        read_csv(table(tmp_path, "r,,\n30,9,\n"))


@pytest.mark.parametrize("source", ["simulated", "counted"])
def test_slopes_in_cycles_of_a_simulator_are_marked(source: str, tmp_path: Path) -> None:
    """Basu's slope is the simulator's cycles, Yaniv's takes any scale."""
    file = file_of(points(12, source=source), table(tmp_path, MEAN))
    assert ("uncalibrated" in {one.kind for one in told_of(file)}) == (source == "simulated")
    for name in ("basu", "pham", "gandhi", "alam", "yaniv", "poly2"):
        told = {one.kind for one in predict(file, 1e9, 5e8, 2e10, model=name).warnings}
        assert ("uncalibrated" in told) == (source == "simulated" and name not in ("yaniv", "poly2"))


def test_a_file_gives_back_the_points_that_it_was_made_of(tmp_path: Path) -> None:
    data = points(12, r_sd=np.linspace(1e7, 2e7, 12), repeats=[3] * 12, extra={"reads": range(12)})
    data = replace(data, roles=("train",) * 9 + ("test",) * 2 + ("train",))
    source = table(tmp_path, MEAN)
    file = file_of(data, source)
    judged = judge(data, [models()["poly2"], models()["yaniv"], models()["gp"]], folds=4)
    file = file.model_copy(update={"fits": fits_of(data, judged, 1)})
    path = tmp_path / "w.model"
    write(path, file)
    again = read(path)
    assert again == file
    for name in ("r", "c", "h", "m", "r_sd", "repeats"):
        assert np.array_equal(getattr(again.points(), name), getattr(data, name))
    assert again.points().roles == data.roles
    assert again.points().anchors == data.anchors
    assert list(again.points().extra["reads"]) == list(range(12))
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == []
    assert again.origin.provenance["libraries"]["scikit-learn"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "pagelab.model/2"}, "it has pagelab.model/2, and this pagelab reads pagelab.model/1"),
        ({"schema": "pagelab.record/1"}, "it is no model's file"),
        ({"workload": 3}, "workload: Input should be a valid string"),
        ({"layouts": []}, "the layout of 4K pages, layout0, is not among them"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = tmp_path / "w.model"
    write(path, file_of(points(6), table(tmp_path, MEAN)))
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(BadInputError, match=message):
        read(path).points()
    with pytest.raises(BadInputError, match="it does not exist; make it with: pagelab model run --into "):
        read(tmp_path / "absent.model")
    for text in ("no JSON", 100_000 * "["):
        path.write_text(text)
        with pytest.raises(BadInputError, match="it is no model's file"):
            read(path)


def test_fits_of_what_there_is_not_are_refused(tmp_path: Path) -> None:
    """Regression: a KeyError, which was called a fault of pagelab itself."""
    data = points(12)
    file = file_of(data, table(tmp_path, MEAN))
    fits = fits_of(data, judge(data, [models()["poly1"]], folds=4), 1)
    path = tmp_path / "w.model"
    write(path, file.model_copy(update={"fits": fits}))
    for old, new, message in (
        (
            '"model": "poly1"',
            '"model": "poly9"',
            "model poly9, which this pagelab does not know; .* fit again: pagelab",
        ),
        ('"layout3":', '"layout99":', "layout layout99, not listed; remove the entry fits"),
    ):
        text = path.read_text()
        (tmp_path / "other.model").write_text(text.replace(old, new))
        with pytest.raises(BadInputError, match=message):
            read(tmp_path / "other.model")
        # model fit replaces them: it is the next step that the message names.
        assert read(tmp_path / "other.model", refit=True).points().layouts == data.layouts
