"""Sources, budgets, interactions and sentences, each by itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from pagelab.diagnose import allocate, judge, words
from pagelab.diagnose.model import Confirmation, Finding, Interval, Settings, Value, Verdict
from pagelab.diagnose.sources import PADDING, input_files, sources
from pagelab.diagnose.specs import COPIES, study_toml
from pagelab.errors import BadInputError
from pagelab.study.planning import plan_text

MACHINE = {"thp_bytes": 2 << 20}


def settings(tmp_path: Path, **changes: object) -> Settings:
    return Settings.model_validate({"argv": ["true"], "cwd": str(tmp_path), **changes})


def interval(estimate: float, low: float, high: float) -> Interval:
    return Interval(estimate=estimate, low=low, high=high, level=0.95)


def finding(key: str, verdict: Verdict, ratio: float, values: Sequence[Value] = ()) -> Finding:
    return Finding(
        key=key,
        label=key,
        verdict=verdict,
        sd_ratio=interval(ratio, 0.9 * ratio, 1.1 * ratio),
        removed=interval(1 - ratio**2, 1 - (1.1 * ratio) ** 2, 1 - (0.9 * ratio) ** 2),
        values=list(values) or [Value(name=f"{key}-{i}", how="", mean=100 + i, cv=0.01) for i in range(3)],
    )


def confirmation(**changes: object) -> Confirmation:
    parts = {
        "recommended": "aslr-off",
        "source": "ASLR",
        "how": "pagelab run --aslr off",
        "executions": 40,
        "cv_default": 0.31,
        "cv_recommended": 0.02,
        "sd_ratio": interval(0.06, 0.05, 0.08),
        "deviation_ratio": interval(0.06, 0.05, 0.08),
        "p": 0.001,
        "mean_shift": interval(-0.004, -0.01, 0.002),
        "mean": "unchanged",
        "confirmed": True,
    }
    return Confirmation.model_validate({**parts, **changes})


def test_every_source_is_a_study_that_can_be_planned(tmp_path: Path) -> None:
    chosen = settings(tmp_path, argv=["cat", "{x}", "a b"])
    found = sources(chosen, MACHINE, 2, 5)
    pins = [pin for source in found for pin in source.pins]
    assert len({pin.name for pin in pins}) == len(pins)
    text = study_toml(chosen, "d", pins, executions=9, warmups=1, copies=COPIES, question="?")
    plan = plan_text(text, tmp_path / "study.toml", tmp_path)
    assert len(plan.conditions) == len(pins) + COPIES
    assert {tuple(each.argv) for each in plan.conditions} == {("cat", "{x}", "a b")}
    by_name = {each.policy: each for each in plan.conditions}
    assert by_name["aslr-off"].aslr is False
    assert by_name["default"].aslr is None
    assert by_name["default"].cpus is None
    assert by_name["cache-flushed"].flush.mode == "files"
    assert by_name["default"].flush.mode == "none"
    assert by_name["everything"].aslr is False
    assert by_name["everything"].cpus is not None


def test_environments_differ_by_steps_of_the_stacks_alignment_all_over_a_page(tmp_path: Path) -> None:
    found = {source.key: source for source in sources(settings(tmp_path), MACHINE, 2, 5)}["environment"]
    sizes = [len(pin.keys["env"][PADDING]) for pin in found.pins]
    assert all(size % 16 == 0 for size in sizes)
    assert [size * 5 // 4096 for size in sizes] == [0, 1, 2, 3, 4]
    other = {source.key: source for source in sources(settings(tmp_path, seed=2), MACHINE, 2, 5)}["environment"]
    assert other.pins != found.pins


def test_aslr_that_is_off_already_is_no_source(tmp_path: Path) -> None:
    found = {source.key: source for source in sources(settings(tmp_path), MACHINE, 0, 5)}
    assert found["aslr"].left_out is not None
    assert "aslr" not in found["everything"].pins[0].keys


def test_the_page_cache_is_that_of_the_programs_files(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x")
    found = input_files(settings(tmp_path, argv=["cat", "data", "--absent", "-"]))
    assert Path(found[0]).name == "cat"
    assert found[1:] == [str(tmp_path / "data")]


COST = {"default": 1.0, "aslr-off": 1.0, **{f"environment-{i}": 1.0 for i in range(1, 6)}}
DRAWN = [[f"environment-{i}" for i in range(1, 6)]]


def test_a_budget_buys_blocks_and_then_values() -> None:
    ample = allocate.allocate(10, 0, COST, DRAWN, 3, 20)  # 360 s for blocks of 9 s
    assert (ample.values, ample.blocks, ample.wanted_minutes) == (5, 40, None)
    small = allocate.allocate(1.5, 0, COST, DRAWN, 3, 20)  # 54 s: with 2 values, 6 s a block
    assert (small.values, small.blocks) == (2, 9)
    assert small.wanted_minutes == 6  # 20 blocks of 9 s are 60% of 5 min; 5% more, rounded up


def test_the_budget_that_is_named_would_do() -> None:
    with pytest.raises(BadInputError) as refused:
        allocate.allocate(0.5, 0, COST, DRAWN, 3, 20)
    least = float(str(refused.value).split("for this program: ")[1].split(" ")[0])
    assert allocate.allocate(least, 0, COST, DRAWN, 3, 20).blocks >= allocate.FEWEST_BLOCKS


def test_a_program_that_takes_too_long_to_be_probed_says_so_before() -> None:
    allocate.before_probing(10, 1.0, 25, 30)
    with pytest.raises(BadInputError, match=r"--minutes \d+ -- CMD"):
        allocate.before_probing(10, 60.0, 25, 30)


def test_more_tests_want_more_blocks() -> None:
    assert allocate.wanted_blocks(15, 3, 0.95) > allocate.wanted_blocks(1, 3, 0.95) > 8


def test_the_simplest_of_equally_good_sources_is_recommended(tmp_path: Path) -> None:
    known = sources(settings(tmp_path), MACHINE, 2, 3)
    found = [finding("aslr", "cause", 0.1, [Value(name="aslr-off", how="", mean=100, cv=0.01)])]
    found += [finding("environment", "cause", 0.05), finding("everything", "cause", 0.04)]
    best = judge.recommended(found, known, 20.0)
    assert best is not None
    assert best[1].name == "aslr-off"
    assert judge.recommended([finding("pages", "undecided", 0.1)], known, 20.0) is None


def test_a_size_of_pages_is_judged_by_its_own_spread(tmp_path: Path) -> None:
    known = sources(settings(tmp_path), MACHINE, 2, 3)
    values = [Value(name="pages-4K", how="", mean=100, cv=0.01), Value(name="pages-2M", how="", mean=90, cv=0.2)]
    together = finding("everything", "cause", 0.3, [Value(name="everything", how="", mean=100, cv=0.06)])
    best = judge.recommended([finding("pages", "part", 0.75, values), together], known, 20.0)
    assert best is not None
    assert best[1].name == "pages-4K"


def test_of_drawn_values_the_middle_one_is_recommended(tmp_path: Path) -> None:
    known = sources(settings(tmp_path), MACHINE, 0, 3)
    values = [Value(name=f"environment-{i}", how="", mean=mean, cv=0.01) for i, mean in ((1, 90), (2, 130), (3, 100))]
    best = judge.recommended([finding("environment", "cause", 0.05, values)], known, 20.0)
    assert best is not None
    assert best[1].name == "environment-3"


def test_interactions_are_named() -> None:
    overlap = judge.interactions([finding("aslr", "cause", 0.1), finding("pages", "cause", 0.1)])
    assert len(overlap) == 1
    assert "overlap" in overlap[0]
    together = judge.interactions([finding("aslr", "undecided", 0.9), finding("everything", "cause", 0.1)])
    assert together == ["no source alone lowers the spread surely, all of them together do: they interact"]
    further = judge.interactions([finding("aslr", "part", 0.8), finding("everything", "cause", 0.1)])
    assert further == ["all of them together lower the spread further than any alone"]


def test_the_sentence_of_a_confirmed_diagnosis(tmp_path: Path) -> None:
    told = words.headline("confirmed", interval(0.3, 0.25, 0.4), confirmation(), settings(tmp_path))
    assert told == "pin aslr-off: spread falls from 31.0% to 2.0%, mean unchanged (−0.40% ± 0.60%)"
    undecided = confirmation(mean="undecided", mean_shift=interval(0, -0.03, 0.03), minutes_for_mean=40)
    told = words.headline("confirmed", interval(0.3, 0.25, 0.4), undecided, settings(tmp_path))
    assert told.endswith("mean not decided (0.00% ± 3.0%)")
    assert any("--minutes 40" in each for each in words.sentences("confirmed", [], undecided, settings(tmp_path)))


def test_a_verdict_against_its_own_interval_says_what_it_rests_on() -> None:
    typical = {"deviation_ratio": interval(0.21, 0.09, 0.49)}
    odd = finding("aslr", "cause", 0.42).model_copy(update={"sd_ratio": interval(0.42, 0.07, 2.39), **typical})
    plain = finding("pages", "cause", 0.1).model_copy(update=typical)
    told = words.extremes([odd, plain, finding("cpu", "undecided", 0.9)])
    assert len(told) == 1
    assert "mean absolute deviation, which falls to 0.21 times (0.09 to 0.49)" in told[0]


def pagelab(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "pagelab", *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name a program"),
        (("--minutes", "0", "--", "true"), "--minutes 0.0: "),
        (("--unchanged", "150", "--", "true"), "--unchanged 150.0: allowed: more than 0, less than 100"),
        (("--level", "2", "--", "true"), "--level 2.0: "),
        (("--resume", "nowhere"), "cannot continue a diagnosis in"),
        (("--resume", "nowhere", "--", "true"), "--resume DIR goes without a command"),
    ],
)
def test_bad_options_are_refused(arguments: tuple[str, ...], said: str) -> None:
    done = pagelab("diagnose", *arguments)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr


def test_a_directory_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    done = pagelab("diagnose", "--into", str(tmp_path), "--", "true")
    assert done.returncode == 2
    assert "is not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
