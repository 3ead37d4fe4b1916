"""``pagelab try``: one command under several settings, as a newcomer types it."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep

import numpy as np
import polars as pl
import pytest
from bench.coverage.machines import MACHINES, SHAPES, study
from typer.testing import CliRunner

from pagelab.analysis.answer import (
    Answer,
    answer_of,
    facts,
    fewest_of,
    left_by_holm,
    more,
    sentence,
    words,
)
from pagelab.analysis.metrics import metric_named
from pagelab.analysis.model import Interval
from pagelab.cli.commands import app
from pagelab.cli.forest import WIDTH, Row, forest
from pagelab.cli.lines import columns_of
from pagelab.cli.options import free_directory
from pagelab.cli.try_ import _again, _further
from pagelab.errors import BadInputError
from pagelab.stats import holm, paired_ratio, paired_shift, pairs_of, signed_rank
from pagelab.study import trying
from pagelab.study.claim import claim
from pagelab.study.pair import TooShortError
from pagelab.study.prepare import TRIAL
from pagelab.study.primary import metric_of, waited
from pagelab.study.setting import Setting, names
from pagelab.study.store import Store
from pagelab.study.trying import Pilot, Trying

WALL = metric_named("wall_s")
BRIEF = ("--minutes", 0.15)
MS = r"(?P<name>op) (?P<value>[0-9.]+) (?P<unit>ms)"


def run(cwd: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pagelab", "try", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


@pytest.mark.by_turns(4)
def test_a_variable_that_matters_is_found_and_the_study_is_kept(tmp_path: Path) -> None:
    """The program reports what the variable says, so the truth is known: half as much again."""
    shell = ("sh", "-c", 'echo "op $OP ms"')
    done = run(tmp_path, "--env", "OP=10", "--env", "OP=15", *BRIEF, "--measure-regex", MS, "--", *shell)
    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    assert first.startswith("op: OP=15 is 50.0% higher than OP=10 (95% interval 50.0–50.0%, ")
    assert any(line.startswith("OP=15") and line.endswith("50.0% higher") for line in rest)
    assert "next: pagelab report try-sh.study" in done.stdout
    with Store.open(tmp_path / "try-sh.study", write=False) as store:
        plan, runs = store.plan(), store.runs()
    assert (plan.test, plan.metric) == ("pairs", "measure.op")
    assert [condition.request.env.set for condition in plan.conditions] == [{"OP": "10"}, {"OP": "15"}]
    assert runs.height == 2 * plan.executions
    assert plan.executions >= 6


@pytest.mark.parametrize(
    ("wall", "cpu", "waiting", "steal", "metric"),
    [
        (1.0, 0.8, 0.2, 0.0, "cpu_s"),  # waited for a processor, and for nothing else
        (1.0, 0.8, 0.1, 0.1, "cpu_s"),  # ... the hypervisor took one as well
        (1.0, 0.8, 0.1, 5.0, "cpu_s"),  # ... and others from other processors
        (1.0, 0.995, 0.005, 0.0, "wall_s"),  # hardly waited
        (1.0, 0.5, 0.1, 0.0, "wall_s"),  # waited for something else, too
        (1.0, 0.1, 0.9, None, "cpu_s"),
        (1.0, 1.8, 0.1, 0.0, "wall_s"),  # several threads at work
        (1.0, 0.8, None, 0.0, "wall_s"),  # not told
    ],
)
def test_what_is_compared_where_nobody_says(
    wall: float, cpu: float, waiting: float | None, steal: float | None, metric: str
) -> None:
    row = {"wall_s": wall, "cpu_s": cpu, "waiting_s": waiting, "steal_s": steal}
    chosen, why = metric_of(pl.DataFrame([row, row], schema=dict.fromkeys(row, pl.Float64)))
    assert chosen == metric
    assert bool(why) == (metric == "cpu_s")


@pytest.mark.parametrize(
    ("runs", "metric", "told"),
    [
        ([(1.02, 1.0, 0.02), (1.22, 1.0, 0.02)], "wall_s", ""),  # one setting sleeps for 0.2 s
        ([(1.02, 1.0, 0.02), (1.10, 1.0, 0.02)], "wall_s", ""),  # 8%, four times as long as it waited
        ([(1.02, 1.0, 0.02), (1.035, 1.0, 0.02)], "cpu_s", "2% of its time, and for little else (1% at most)"),
        ([(1.30, 1.0, 0.30), (1.38, 1.0, 0.30)], "cpu_s", "22% of its time, and for little else (6% at most)"),
        ([(1.30, 1.0, 0.30), (1.304, 1.0, 0.30)], "cpu_s", "23% of its time, and for nothing else"),
        ([(1.02, 1.0, 0.02), (1.02, 1.9, 0.02)], "wall_s", ""),  # one setting has two threads at work
    ],
)
def test_a_slowdown_of_one_setting_is_not_left_out_of_the_metric(
    runs: list[tuple[float, float, float]], metric: str, told: str
) -> None:
    """Regression: the sum over all settings was 91% accounted for, so processor time hid that one was 20% slower, and
    the reason was that the program waited "for nothing else".
    """
    rows = [{"wall_s": wall, "cpu_s": cpu, "waiting_s": waiting, "steal_s": 0.0} for wall, cpu, waiting in runs]
    chosen, why = metric_of(pl.DataFrame(rows))
    assert chosen == metric
    assert told in why


def test_processor_time_is_advised_by_all_runs_together() -> None:
    """By one of awk's six runs, which waited for something else for a tenth of its time, nothing is chosen unasked."""
    wall, cpu = [0.026, 0.035, 0.040, 0.145, 0.038], [0.010, 0.014, 0.013, 0.023, 0.015]
    runs = pl.DataFrame({"wall_s": wall, "cpu_s": cpu, "waiting_s": [0.016, 0.021, 0.026, 0.107, 0.022]})
    runs = runs.with_columns(steal_s=pl.lit(0.0))
    assert metric_of(runs) == ("wall_s", "")
    assert waited(runs) == "it waited for a processor in 68% of its time"
    assert waited(runs.with_columns(waiting_s=0.0 * pl.col("wall_s"))) is None
    assert waited(runs.with_columns(waiting_s=0.3 * pl.col("wall_s"))) is None, "of the rest nothing is known"
    assert waited(runs.with_columns(waiting_s=pl.lit(None, pl.Float64))) is None


def test_a_command_that_fails_is_told_with_its_words_and_leaves_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, "--env", "A=1", "--env", "A=2", *BRIEF, "--", "sh", "-c", "echo no $A >&2; exit $((A - 1))")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "pagelab: A=2 failed: exit code 1: no 2; nothing was compared; run it alone: "
        "pagelab run --env A=2 -- sh -c 'echo no $A >&2; exit $((A - 1))'"
    )
    assert list(tmp_path.iterdir()) == []


def test_the_time_of_an_execution_that_was_stopped_is_not_guessed(tmp_path: Path) -> None:
    """Regression: --minutes 1 was named as too little, then 3, and so on: the time was that of the limit."""
    done = run(tmp_path, "--env", "A=1", "--env", "A=2", "--minutes", 0.1, "--", "sleep", "30")
    assert done.returncode == 2
    assert done.stderr.endswith(
        "it was stopped there, so the time needed is not known; try --minutes 10, or time it: pagelab run -- sleep 30\n"
    )


def test_stopped_in_its_pilot_it_leaves_nothing_and_says_how_to_begin_again(tmp_path: Path) -> None:
    """Regression: after Ctrl-C in the pilot, ``try`` proposed to resume the pilot, and its directory was no study."""
    settings = ("--env", "A=1", "--env", "A=2", "--minutes", "5")
    program = ("sh", "-c", f"echo x >> {tmp_path}/log; sleep 60")
    words = [sys.executable, "-m", "pagelab", "try", *settings, "--", *program]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as running:
        deadline = monotonic() + 120
        while not (tmp_path / "log").exists() and monotonic() < deadline:
            sleep(0.05)
        running.send_signal(signal.SIGINT)
        _, error = running.communicate(timeout=60)
    assert running.returncode == 130, error
    assert error.splitlines()[-1] == (
        "pagelab: stopped by SIGINT before the first comparison; nothing is kept; begin again with: "
        f"{shlex.join(['pagelab', 'try', *settings, '--', *program])}"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_a_pilot_without_runs_says_nothing() -> None:
    names = ("wall_s", "cpu_s", "waiting_s", "steal_s")
    assert metric_of(pl.DataFrame(schema=dict.fromkeys(names, pl.Float64))) == ("wall_s", "")


@pytest.mark.by_turns(4)
def test_a_program_that_only_waits_for_a_processor_is_judged_by_processor_time(tmp_path: Path) -> None:
    """Four programs on one processor, of which ours is one."""
    cpu = min(os.sched_getaffinity(0))
    busy = [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{cpu}}})\nwhile True: pass"]
    others = [subprocess.Popen(busy) for _ in range(3)]
    try:
        work = ("--", sys.executable, "-c", "sum(range(2_000_000))")
        done = run(tmp_path, "--env", "A=1", "--env", "A=2", "--cpu", cpu, "--minutes", 0.3, "--json", *work)
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["metric"] == "cpu_s"
    assert "waited for a processor" in found["metric_why"]


def test_a_program_that_is_not_there_is_told_once_and_a_quoted_command_with_the_remedy(tmp_path: Path) -> None:
    """Regression: "sort-numbers/4K: cannot find the program sort numbers", once for each setting."""
    settings = ("--pages", "4K", "--pages", "2M")
    done = run(tmp_path, *settings, "--", "sotr")
    assert done.stderr.endswith("cannot find the program sotr in PATH; run: command -v sotr\n")
    assert done.stderr.count("sotr") == 2
    done = run(tmp_path, *settings, "--", "sort numbers.txt")
    assert done.stderr == (
        "pagelab: cannot find the program 'sort numbers.txt'; leave the quotes out: "
        "pagelab try --pages 4K --pages 2M -- sort numbers.txt\n"
    )
    command = [sys.executable, "-m", "pagelab", "run", "sort -n numbers.txt"]
    told = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert told.returncode == 2
    assert told.stderr.endswith("leave the quotes out: pagelab run -- sort -n numbers.txt\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.by_turns(4)
def test_json_is_alone_on_standard_output(tmp_path: Path) -> None:
    done = run(tmp_path, "--aslr", "off", *BRIEF, "--json", "--into", "kept", "--", "echo", "noise")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["schema"], found["baseline"], found["study"]) == ("pagelab.try/1", "ASLR on", "kept")
    assert [one["setting"] for one in found["settings"]] == ["ASLR off"]
    assert found["settings"][0]["pairs"] == found["executions"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--", "true"), "nothing to try: give settings before the command, such as --pages 4K --pages 2M"),
        (("--pages", "4K", "--pages", "4K", "--", "true"), "--pages 4K is given twice"),
        (("--pages", "4K", "--pages", "2M", "--aslr", "on", "--aslr", "off", "true"), "one kind at a time"),
        (("--pages", "2M", "--env", "A=1", "--", "true"), "which is to be tried?"),
        (("--env", "A", "--", "true"), "--env A: not of the form NAME=VALUE"),
        (("--pages", "3K", "--", "true"), "--pages 3K"),
        (("--aslr", "on", "--aslr", "maybe", "--", "true"), "--aslr maybe: allowed: on, off"),
        (("--aslr", "on", "--minutes", "0", "--", "true"), "--minutes 0: not within"),
        (("--aslr", "on", *BRIEF, "--", "false"), "exit code 1; nothing was compared"),
        (("--aslr", "on", *BRIEF, "--", "sleep", "60"), "one execution takes more than"),
    ],
)
def test_bad_input_exits_2(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    done = run(tmp_path, *arguments)
    assert done.returncode == 2, done.stdout
    assert message in done.stderr


@pytest.mark.by_turns(4)
def test_a_second_try_does_not_touch_the_first(tmp_path: Path) -> None:
    (tmp_path / "try-true.study").mkdir()
    done = run(tmp_path, "--aslr", "off", *BRIEF, "--", "true")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "try-true-2.study" / "study.db").exists()
    assert list((tmp_path / "try-true.study").iterdir()) == []


def test_of_two_that_start_together_each_has_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: both took the same one, and the one that failed removed the executions of the other."""
    monkeypatch.chdir(tmp_path)
    first, second = (free_directory(None, "try-x", ".study", "", TRIAL) for _ in range(2))
    assert (first.path, second.path) == (Path("try-x.study"), Path("try-x-2.study"))
    named = claim(tmp_path / "mine", TRIAL)
    assert named is not None
    with pytest.raises(BadInputError, match=r"--into .*mine: it exists"):
        free_directory(tmp_path / "mine", "try-x", ".study", "it exists", TRIAL)
    second.clear()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "try-x.study"]


@pytest.mark.parametrize(("error", "kept"), [(TooShortError, []), (BadInputError, ["study.db", "trial"])])
def test_a_time_that_is_too_short_leaves_the_directory_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BadInputError], kept: list[str]
) -> None:
    """Regression: the command with the --minutes that it named was refused, since --into had the executions so far."""
    mine = tmp_path / "mine"
    mine.mkdir()

    def ran(_wanted: Trying, directory: Path, *_: object) -> tuple[Pilot, int]:
        (directory / "study.db").touch()
        raise error("it does not fit; give it --minutes 2")

    monkeypatch.setattr(trying, "run_try", ran)
    done = CliRunner().invoke(app, ["try", "--env", "A=1", "--env", "A=2", "--into", str(mine), "--", "true"])
    assert isinstance(done.exception, error)
    assert sorted(path.name for path in mine.iterdir()) == kept


@pytest.mark.parametrize(("conditions", "fewest"), [(2, 6), (3, 7), (5, 8), (26, 10)])
def test_enough_blocks_are_planned_for_every_comparison_after_holm(conditions: int, fewest: int) -> None:
    settings = tuple(Setting(f"s{i}", "") for i in range(conditions))
    wanted = Trying(("true",), "/", settings)
    assert wanted.fewest == fewest
    contrasts = conditions - 1
    assert contrasts * 2 / 2**fewest <= 0.05
    assert fewest == 6 or contrasts * 2 / 2 ** (fewest - 1) > 0.05


@pytest.mark.by_turns(4)
def test_pairs_without_a_value_are_counted(tmp_path: Path) -> None:
    """Regression: "18 executions of each, in pairs" was said where half of one side had printed no number."""
    count = "n=$(cat n 2>/dev/null || echo 0); echo $((n + 1)) >n; test $n -gt 5 && test $((n % 3)) = 0 && OP=nan; "
    given = ("--env", "OP=1", "--env", "OP=2", *BRIEF, "--measure-regex", r"(?P<name>op) (?P<value>\S+) (?P<unit>ms)")
    done = run(tmp_path, *given, "--", "sh", "-c", f'{count}echo "op $OP ms"')
    assert done.returncode == 0, done.stderr
    told = re.search(r": op, ([\d,]+) executions of each, ([\d,]+) pairs? with both values; change", done.stdout)
    assert told is not None, done.stdout
    executions, pairs = (int(number.replace(",", "")) for number in told.groups())
    assert pairs < executions
    assert re.search(
        rf"warning: \d+ of {executions} executions in sh/OP-1 and \d+ of .* have no value of op", done.stdout
    )


def test_the_minutes_for_so_many_blocks_hold_them() -> None:
    pilot = Pilot(block_s=2.0, spent_s=5.0)
    assert 60 * pilot.minutes_for(40) >= 5.0 + 40 * 2.0
    assert Pilot(0.001, 1.0).minutes_for(6) == 0.1


def test_names_of_settings_are_different_and_fit_a_study() -> None:
    settings = tuple(Setting(name, "") for name in ("A=1", "A 1", "heap=0-64M:2M", "==="))
    assert Trying(("true",), "/", settings).names() == ["A-1", "A-1-2", "heap-0-64M-2M", "setting"]


def answer(low: float, high: float, p: float, pairs: int = 20, family: int = 1) -> Answer:
    middle = ((1 + low) * (1 + high)) ** 0.5 - 1
    return answer_of(middle, Interval(low, high, 0.95), p, pairs, level=0.95, family=family)


@pytest.mark.parametrize(
    ("found", "said", "text"),
    [
        (answer(0.442, 0.471, 0.001), "higher", "B is 45.6% slower than A"),
        (answer(-0.20, -0.12, 0.001), "lower", "B is 16.1% faster than A"),
        (answer(2.9, 3.1, 0.001), "higher", "B takes 4.00 times as long as A"),
        (answer(-0.012, 0.010, 0.8), "same", "B against A: same within ±1.2%"),
        (answer(-0.03, 0.03, 0.8), "same", "B against A: same within ±3.0%"),
        (answer(-0.03, 0.031, 0.8), "cannot-tell", "B against A: cannot tell: under 4.6% would not be seen"),
        (answer(0.01, 0.02, 0.06), "same", "B against A: same within ±2.0%"),
        (answer(0.01, 0.08, 0.06), "cannot-tell", "B against A: cannot tell: the test and the interval disagree"),
        (answer(-0.1, 0.1, 0.001, pairs=5), "cannot-tell", "B against A: cannot tell: 5 pairs, 6 are the fewest"),
    ],
)
def test_one_rule_says_what_was_found(found: Answer, said: str, text: str) -> None:
    assert found.said == said
    assert sentence(found, WALL, "B", "A") == text


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [(-0.012, -0.005, "−1.2% to −0.50%"), (-0.10, -0.03, "−10.0% to −3.0%"), (0.03, 0.10, "+3.0% to +10.0%")],
)
def test_an_interval_beside_no_direction_has_its_signs(low: float, high: float, shown: str) -> None:
    """Regression: "same within ±1.2% (95% interval 0.50–1.2%)" was said of a decrease."""
    found = answer(low, high, 0.2)
    assert found.said in ("same", "cannot-tell")
    assert facts(found, WALL)[0] == f"95% interval {shown}"
    lower = answer(-0.10, -0.03, 0.01)
    assert facts(lower, WALL)[0] == "95% interval 3.0–10.0%"


def test_what_holm_takes_away_names_no_change_that_would_be_missed() -> None:
    """Regression: "under 9.7% would not be seen" was said beside an interval of 2 to 9%; only the report was right."""
    found = replace(answer(0.02, 0.09, 0.2, family=3), comparisons=3)
    assert words(found, WALL) == "cannot tell among 3 comparisons"


def test_the_fewest_pairs_are_those_that_holm_asks_for() -> None:
    """Regression: beside a comparison that was rejected, "6 pairs, 7 are the fewest" was said of one that could be."""
    p = holm([1e-6, 0.0625]).adjusted
    assert left_by_holm(p, 0.05) == [2, 1]
    assert left_by_holm(holm([0.0625, 0.0625]).adjusted, 0.05) == [2, 2]
    assert left_by_holm([None, 0.01, 0.2], 0.05) == [2, 3, 2]  # a comparison without data keeps its place
    told = [words(answer(-0.1, 0.12, 0.0625, pairs=6, family=n), WALL) for n in (1, 2)]
    assert told[0].startswith("cannot tell: under ")
    assert told[1] == "cannot tell: 6 pairs, 7 are the fewest"


@pytest.mark.parametrize("family", [1, 2, 9, 25])
@pytest.mark.parametrize("more_pairs", [0, 3, 10])
def test_a_change_that_would_be_seen_is_found_in_four_of_five_studies(family: int, more_pairs: int) -> None:
    """Regression: with the fewest pairs it was found in 41 to 53%, since quantiles of the normal distribution stood for
    those of the exact test. 400 studies (standard error 2%), and as many for the median of what is promised.
    """
    pairs = fewest_of("pairs", 0.05 / family) + more_pairs
    random = np.random.default_rng([31, family, more_pairs])
    promised = []
    for _ in range(200):
        size = paired_shift(0.03 * random.standard_normal(pairs))
        low, high = np.expm1([size.interval.low, size.interval.high])  # type: ignore[union-attr]
        ends = Interval(low, high, 0.95)
        found = answer_of(float(np.expm1(size.estimate)), ends, 1.0, pairs, level=0.95, family=family)
        promised.append(found.seen)
    change = np.log1p(np.median(np.array(promised, dtype=float)))
    seen = sum(
        family * signed_rank(change + 0.03 * random.standard_normal(pairs)).p <= 0.05 * (1 + 1e-12) for _ in range(400)
    )
    assert 0.72 <= seen / 400 <= 0.88


def test_what_an_answer_would_take_is_said_with_the_command() -> None:
    found = answer(-0.12, 0.12, 0.7)
    assert found.needed == 333
    told = more(found, 20, 2.0, lambda n: f"again {n}")
    assert told == "±3% needs 333 executions of each (11 min 06 s): again 333"
    assert more(answer(-0.01, 0.01, 0.7), 20, 2.0, str) is None
    assert (answer(-0.12, 0.12, 0.7, family=20).seen or 0) > (found.seen or 0)


def test_what_is_narrow_and_undecided_takes_more_than_there_are() -> None:
    """Regression: 60 pairs (-0.5 to +3.1%) were told that 22 executions would do."""
    found = answer_of(0.013, Interval(-0.005, 0.031, 0.95), 0.15, 60, level=0.95)
    assert found.said == "cannot-tell"
    assert found.needed is not None
    assert 60 < found.needed < 120
    told = more(found, 60, 0.1, lambda n: f"run {n}")
    assert told is not None
    assert told.startswith(f"an answer needs {found.needed} executions of each (")


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("change", [0.0, 0.06])
def test_words_are_seldom_wrong_on_any_machine(machine: str, change: float) -> None:
    """400 studies of 20 pairs: nothing, or 6%, which is neither the same nor lower; three standard errors beyond."""
    random = np.random.default_rng([13, round(100 * change), *map(ord, machine)])
    said = []
    for _ in range(400):
        shapes = (SHAPES["steady"], SHAPES["steady"])
        one = study(random, MACHINES[machine], shapes, (0.0, np.log1p(change)), 20)
        baseline, treatment = one.times.T
        pairs = pairs_of(treatment, baseline, treatment_blocks=one.blocks, baseline_blocks=one.blocks)
        found = paired_ratio(pairs)
        ends = Interval(found.interval.low / 100, found.interval.high / 100, 0.95)  # type: ignore[union-attr]
        said.append(answer_of(found.percent / 100, ends, signed_rank(pairs.apart()).p, 20, level=0.95).said)
    if change == 0:
        assert said.count("lower") + said.count("higher") <= 0.083 * 400
    else:
        assert said.count("same") + said.count("lower") <= 0.05 * 400
        assert machine != "quiet" or said.count("higher") >= 0.8 * 400


def test_words_of_other_metrics_are_not_those_of_time() -> None:
    faults = metric_named("minor_faults")
    assert words(answer(-0.20, -0.12, 0.001), faults) == "16.1% lower"
    assert sentence(answer(2.9, 3.1, 0.001), faults, "B", "A") == "minor faults: B is 4.00 times as high as A"


def test_the_picture_has_an_axis_zero_and_arrows_for_what_lies_outside() -> None:
    rows = [Row("A", None, None, None, "1 s")]
    rows += [Row(f"B{i}", 0.05, 0.02, 0.08, "5% slower") for i in range(3)]
    rows.append(Row("wild", 2.0, -0.9, 9.0, "cannot tell"))
    axis, base, near, *_, wild = forest(rows)
    assert "0" in axis
    assert axis.rstrip().endswith("%")
    zero = base.index("│")
    assert near.index("●") > zero
    assert near.rstrip().endswith("5% slower")
    assert "◀" in wild
    assert "▶" in wild
    assert "●" not in wild
    assert len({line.index(last) for line, last in ((near, "5% slower"), (wild, "cannot tell"))}) == 1
    assert near.index("5% slower") == len("wild") + 2 + WIDTH + 2


def test_long_and_wide_labels_leave_room_for_the_picture() -> None:
    """Regression: a variable's value of 150 characters moved the axis off the screen."""
    value = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.arena_max=" + "7" * 90
    rows = [Row(f"{value}{end}", 0.05, 0.02, 0.08, "5% slower") for end in ("1", "22")]
    rows += [Row("長い名前" * 9, 0.05, 0.02, 0.08, "5% slower"), Row("a\nb", 0.05, 0.02, 0.08, "5% slower")]
    _, *lines = forest(rows)
    labels = [line[: line.index("│")] for line in lines]
    assert len({columns_of(label) for label in labels}) == 1
    assert all(columns_of(line) <= 30 + 2 + WIDTH + 2 + len("5% slower") for line in lines)
    assert [label.split()[0][-2:] for label in labels[:2]] == ["71", "22"]
    assert "a\\nb" in labels[3] or "a\\x0ab" in labels[3]


def test_labels_that_begin_alike_are_told_by_their_ends() -> None:
    rows = [Row(f"{'x' * 40}{end}", 0.05, 0.02, 0.08, "") for end in ("one", "two")]
    _, one, two = forest(rows)
    assert (one.split()[0], two.split()[0]) == ("…one", "…two")


def test_a_limit_stands_in_the_picture_unless_it_would_squash_it() -> None:
    rows = [Row("A", None, None, None, ""), Row("B", 0.05, 0.02, 0.08, "")]
    _, above, below = forest(rows, [0.1, -0.1])
    assert above.count("┊") == below.count("┊") == 2
    assert above.index("┊") < above.index("│") < above.rindex("┊")
    assert below.index("●") < below.rindex("┊")
    assert not any("┊" in line for line in forest(rows, [5.0]))


def test_a_picture_without_any_interval_is_words() -> None:
    assert forest([Row("A", None, None, None, "1 s"), Row("B", 0.1, None, None, "cannot tell")]) == [
        "A  1 s",
        "B  cannot tell",
    ]


def undecided(needed: int | None) -> Answer:
    return Answer("cannot-tell", 0.0, Interval(-0.5, 0.9, 0.95), 0.7, 16, 1.0, needed)


TRIED = Trying(argv=("./job", "a b"), cwd="/", settings=(), timeout_s=9.0, level=0.99)


@pytest.mark.parametrize(
    ("needed", "command", "why"),
    [
        (
            [20, 90],
            "pagelab try --pages 2M --timeout 9 --level 0.99 --minutes 1.7 -- ./job 'a b'",
            "±3% needs about 90 executions of each, 1 min 42 s",
        ),
        (
            [20, 1_016],  # --minutes ends with a thousand
            "pagelab study resume try.study --executions 1016",
            "±3% needs about 1,016 executions of each: 16 min 40 s more, and a further look, which is judged more "
            "strictly",
        ),
    ],
)
def test_the_next_command_makes_as_many_executions_as_are_needed(needed: list[int], command: str, why: str) -> None:
    again = _again({"pages": ["2M"], "cpu": None}, None, TRIED)
    answers = [undecided(one) for one in needed]
    assert _further(answers, TRIED, 16, Pilot(1.0, 6.0), again, Path("try.study")) == (command, why)


def test_nothing_further_is_asked_where_all_is_told_or_there_are_as_many() -> None:
    told = Answer("same", 0.0, Interval(-0.01, 0.01, 0.95), 0.7, 16, 0.01, 16)
    late = replace(undecided(None), late=3)  # a longer time limit would tell, not more executions
    for answers in ([told], [undecided(16)], [late]):
        assert _further(answers, TRIED, 16, Pilot(1.0, 6.0), [], Path("try.study")) is None


def test_settings_that_differ_in_signs_only_have_names_of_their_own() -> None:
    """Regression: "a second policy is called V-a-3", of valid values."""
    found = names([Setting(f"V={value}", "") for value in ("a", "a-3", "a!", "a?")])
    assert len(set(found)) == 4
