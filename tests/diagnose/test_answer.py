"""The first screen of a diagnosis: one sentence, one picture, shares, one command, at most one caveat."""

from __future__ import annotations

import io
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from test_diagnose import diagnosed, finding, settings, tools
from test_parts import confirmation, contrast, interval
from test_parts import finding as made

from pagelab.analysis.metrics import metric_named
from pagelab.cli.diagnose import show
from pagelab.diagnose import allocate, answer, judge
from pagelab.diagnose.model import Confirmation, Diagnosis, Finding, Interval, Outcome, Pin, Settings, Typical
from pagelab.diagnose.page import Phases, figures_of, write
from pagelab.diagnose.run import begin, resume
from pagelab.diagnose.sources import COMBINED, sources
from pagelab.diagnose.strip import WIDTH, Row, bar, strip
from pagelab.study.plan import Condition

TWO = Typical(low=0.007, high=0.013, two=True)
RANGE = Typical(low=0.0051, high=0.0131, two=False)
REMOVED = contrast(removed=interval(0.861, 0.82, 0.88))


def of(
    outcome: Outcome,
    found: list[Finding] | None = None,
    one: Confirmation | None = None,
    typical: Typical = TWO,
    machine: Interval | None = None,
    **changes: object,
) -> Diagnosis:
    parts = {
        "schema": "pagelab.diagnosis/2",
        "settings": Settings(argv=["./bench", "a b"], cwd="/"),
        "outcome": outcome,
        "headline": "",
        "sentences": [],
        "metric": "wall_s",
        "blocks": 20,
        "executions": 800,
        "default_mean": 0.01,
        "default_spread": interval(0.3, 0.25, 0.4),
        "typical": typical,
        "machine": machine,
        "findings": found or [made("aslr", "undecided", 0.9), made("cpu", "ruled-out", 1.0), left_out()],
        "interactions": [],
        "notes": [],
        "confirmation": one,
        "spent_minutes": 9.0,
    }
    return Diagnosis.model_validate({**parts, **changes})


def left_out() -> Finding:
    return Finding(key="frames-random", label="random frames", verdict="left-out", reason="needs root")


def aslr() -> Finding:
    return made("aslr", "cause", 0.3).model_copy(update={"label": "ASLR"})


def pages() -> Finding:
    return made("pages", "part", 0.8).model_copy(update={"label": "page size"})


def test_two_modes_and_one_cause() -> None:
    found = of("confirmed", [aslr(), made("cpu", "ruled-out", 1.0)], confirmation(contrasts=[REMOVED]))
    assert answer.headline(found) == (
        "ASLR decides it: 7 or 13 ms; pinned, 86% of the variance is gone (82–88%, 40 fresh executions of each)"
    )


def test_a_cause_of_less_than_half_makes_a_part() -> None:
    one = confirmation(contrasts=[contrast(removed=interval(0.3, 0.2, 0.4))])
    told = answer.headline(of("confirmed", [aslr()], one, RANGE))
    assert told.startswith("ASLR makes part of it: 5.1 to 13 ms; pinned, 30% of the variance is gone (20–40%, ")


def test_a_diagnosis_prints_as_its_sentence_and_its_sources() -> None:
    found = of("confirmed", [aslr(), made("cpu", "ruled-out", 1.0)], confirmation(contrasts=[REMOVED]))
    assert str(found).splitlines()[0] == found.headline
    assert str(found).splitlines()[1].split(maxsplit=1) == ["ASLR", "most of it"]
    assert "<th style='text-align:left'>ASLR</th>" in found._repr_html_()


def test_several_causes() -> None:
    """Regression: "ASLR and the size of its pages decide it", although only ASLR was run again."""
    found = of("confirmed", [aslr(), pages(), made("cpu", "ruled-out", 1.0)], confirmation(contrasts=[REMOVED]))
    assert answer.headline(found) == (
        "ASLR decides it: 7 or 13 ms; pinned, 86% of the variance is gone (82–88%, 40 fresh executions of each); the "
        "size of its pages: also seen, not confirmed"
    )
    together = made(COMBINED, "cause", 0.3).model_copy(update={"label": "all of these"})
    one = confirmation(contrasts=[REMOVED], source="all of these", recommended="aslr-off-and-cpu-1")
    told = answer.headline(of("confirmed", [made("aslr", "undecided", 0.9), together], one, RANGE))
    assert told.startswith("Several sources together decide it: 5.1 to 13 ms; with aslr-off-and-cpu-1, 86% of ")


def test_no_cause_found() -> None:
    told = answer.headline(of("unexplained"))
    assert told == (
        "No cause found: 7 or 13 ms; none of 2 sources that were pinned was seen to make it, and one that halves the "
        "spread would have shown in four diagnoses of five (fewer where times have a long tail)"
    )
    assert answer.headline(of("unexplained", wanted_minutes=40.0)).endswith("halves the spread may have been missed")
    for share in (interval(0.3, 0.25, 0.5), interval(0.6, 0.05, 0.9)):  # less than half; or it may be next to nothing
        assert answer.headline(of("unexplained", machine=share)).startswith("No cause found")


def test_the_cause_is_the_machine() -> None:
    found = of("unexplained", typical=RANGE, machine=interval(0.62, 0.5, 0.7))
    assert answer.headline(found) == (
        "The machine decides it: 5.1 to 13 ms; executions that ran at the same time were slow together under every "
        "pin: 62% of the variance (50–70%)"
    )


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ("refuted", "No cause found: 7 or 13 ms; ASLR looked like it, and 40 fresh executions of each refute that "),
        ("undecided", "No confirmed cause: 7 or 13 ms; ASLR may make 40% (0–70%) of the variance, as far "),
    ],
)
def test_what_fresh_executions_do_not_confirm_decides_nothing(result: str, said: str) -> None:
    one = contrast(result=result, removed=interval(0.4, -0.2, 0.7))
    outcome: Outcome = "refuted" if result == "refuted" else "undecided"
    found = of(outcome, [aslr()], confirmation(contrasts=[one], result=result))
    assert answer.headline(found).startswith(said)
    assert answer.fix(found) is None
    assert answer.shares(found) == [], "a bar of one part says nothing"
    disturbed = found.model_copy(update={"machine": interval(0.2, 0.1, 0.3)})
    assert [part.kind for part in answer.shares(disturbed)] == ["machine", "unexplained"]


def test_nothing_jumps() -> None:
    found = of("nothing-to-explain", default_spread=interval(0.004, 0.003, 0.006))
    assert answer.headline(found) == (
        "Nothing jumps: an execution takes 10.0 ms, and executions differ by 0.40% (at most 0.60%; 60 executions, in "
        "which a slow mode rarer than 1 in 20 may not have shown)"
    )
    assert answer.shares(found) == []


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(0.1, 0.1304, "100 or 130 ms"), (0.1, 0.1003, "100.0 or 100.3 ms"), (2e-6, 3e-6, "2 or 3 µs")],
)
def test_two_times_are_told_apart(low: float, high: float, said: str) -> None:
    told = answer.headline(of("confirmed", [aslr()], confirmation(), Typical(low=low, high=high, two=True)))
    assert told.startswith(f"ASLR decides it: {said}; ")


def test_shares_add_up_to_the_whole() -> None:
    one = confirmation(contrasts=[REMOVED])
    parts = answer.shares(of("confirmed", [aslr()], one, machine=interval(0.1, 0.05, 0.2)))
    assert [(part.kind, round(part.share, 3)) for part in parts] == [
        ("cause", 0.861), ("machine", 0.1), ("unexplained", 0.039),
    ]  # fmt: skip
    assert [answer.share_text(part) for part in parts] == [
        "ASLR 86% (82–88%)", "the machine 10% (5–20%)", "unexplained 4%",
    ]  # fmt: skip
    beyond = answer.shares(of("confirmed", [aslr()], one, machine=interval(0.6, 0.4, 0.8)))
    assert sum(part.share for part in beyond) == pytest.approx(1)
    assert [round(part.share, 3) for part in beyond] == [0.861, 0.139, 0.0]


@pytest.mark.parametrize(
    ("how", "typed"),
    [
        (
            "pagelab run --cpu 1 (or: taskset -c 1)",
            "pagelab run --cpu 1 -- ./bench 'a b'  # or: taskset -c 1 ./bench 'a b'",
        ),
        ("sudo pagelab run --frames random:seed=1", "sudo pagelab run --frames random:seed=1 -- ./bench 'a b'"),
        ("pagelab run --aslr off, its files read", "pagelab run --aslr off -- ./bench 'a b'  # its files read"),
        ("read its files before it runs: cat f > /dev/null", "cat f > /dev/null  # read its files before it runs"),
    ],
)  # fmt: skip
def test_the_fix_is_a_command_to_type(how: str, typed: str) -> None:
    found = of("confirmed", [aslr()], confirmation(how=how))
    assert answer.fix(found) == typed
    following = answer.following(found, Path("b.diagnosis"))
    assert following.command == typed
    assert subprocess.run(["sh", "-n", "-c", typed], check=False).returncode == 0
    assert following.why == "spread 2.0% in place of 31.0%; mean −0.40% ± 0.60%"


def test_without_a_fix_the_next_command_is_what_would_tell() -> None:
    where = Path("here/bench.diagnosis")
    again = ["pagelab", "diagnose"]
    more = answer.following(of("unexplained", wanted_minutes=40.0), where).command.split()
    assert more[:4] == [*again, "--minutes", "40"]
    assert "--into" not in more, "it takes the next free one"
    machine = answer.following(of("unexplained", machine=interval(0.6, 0.4, 0.8), wanted_minutes=40.0), where)
    assert "--minutes 10 --metric cpu_s" in machine.command
    one = confirmation(contrasts=[contrast(result="undecided")], result="undecided", minutes_for_spread=25)
    assert "--minutes 25" in answer.following(of("undecided", [aslr()], one), where).command
    assert answer.following(of("unexplained"), where).command == "pagelab report here/bench.diagnosis"


def test_what_waited_for_a_processor_is_diagnosed_by_processor_time_next() -> None:
    """Regression: of 76% of the CPU taken by others, "next" was eleven minutes of the same noise."""
    waited = "it waited for a processor in 55% of its time"
    following = answer.following(of("unexplained", wanted_minutes=11.0, waited=waited), Path("bench.diagnosis"))
    assert "--minutes 11 --metric cpu_s -- " in following.command
    assert following.why.endswith(f"; processor time, because {waited}")
    assert "--minutes 10 --metric cpu_s -- " in answer.following(of("unexplained", waited=waited), Path("d")).command


@pytest.mark.parametrize(("width", "head"), [(80, ["SD ratio", "verdict"]), (110, ["mean shift", "verdict"])])
def test_in_80_columns_a_verdict_has_its_line_and_the_command_is_whole(
    tmp_path: Path, width: int, head: list[str]
) -> None:
    """Regression: "no / effect / seen" under "verdi…", and a line end inside of the command's quotes."""
    found = of("undecided", wanted_minutes=11.0).model_copy(
        update={"settings": Settings(argv=["awk", "BEGIN{for(i=0;i<100000;i++)a[i]=i; print 5}"], cwd="/")}
    )
    out = io.StringIO()
    console = Console(file=out, width=width)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pagelab.cli.diagnose._picture", lambda _found, _directory: [])
        show(found, console, tmp_path)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    assert "next: pagelab diagnose --minutes 11 -- awk 'BEGIN{for(i=0;i<100000;i++)a[i]=i; print 5}'" in lines
    (heading,) = (line for line in lines if line.startswith("pinned"))
    assert re.split(r"  +", heading.strip())[-2:] == head
    assert any(line.endswith("  no effect seen") for line in lines)


def test_two_times_are_two_only_where_both_are_clear() -> None:
    random = np.random.default_rng(1)
    two = np.where(random.random(60) < 0.3, 13, 7) * random.lognormal(0, 0.02, 60)
    found = judge.typical(two)
    assert found.two
    assert (found.low, found.high) == (pytest.approx(7, rel=0.02), pytest.approx(13, rel=0.02))
    for values in (
        random.normal(100, 5, 500), random.uniform(50, 150, 500), random.exponential(10, 500) + 50,
        np.concatenate([random.normal(100, 1, 58), [200, 210]]),  # a stray pair is no mode
        np.full(30, 5.0), np.array([5.0, 6.0]),
    ):  # fmt: skip
        one = judge.typical(values)
        assert not one.two
        assert (one.low, one.high) == tuple(pytest.approx(q) for q in np.quantile(values, [0.1, 0.9]))


def combined(verdicts: dict[str, tuple[str, float]], tmp_path: Path) -> Pin:
    """What is confirmed of the combination where its parts were judged so: verdict, and variance removed."""
    known = sources(settings(tmp_path), {}, 2, 2)
    found = [
        Finding.model_validate(
            {"key": key, "label": key, "verdict": verdict, "removed": interval(removed, 0, 1).model_dump()}
        )
        for key, (verdict, removed) in verdicts.items()
    ]
    pin = next(source.pins[0] for source in known if source.key == COMBINED)
    return judge.without_cleared(pin, found, known)


def test_the_fix_has_nothing_in_it_that_was_cleared(tmp_path: Path) -> None:
    cleared = {"pages": ("ruled-out", 0.01), "page-cache": ("ruled-out", -0.05)}
    found = combined({"aslr": ("undecided", 0.3), "cpu": ("ruled-out", 0.25), **cleared}, tmp_path)
    assert re.fullmatch(r"aslr-off-and-cpu-\d+", found.name)
    assert set(found.keys) == {"aslr", "cpus"}
    assert re.fullmatch(r"pagelab run --aslr off --cpu \d+", found.how)
    adding = combined({"aslr": ("undecided", 0.3), "cpu": ("adds", -0.5), **cleared}, tmp_path)
    assert (adding.name, adding.how) == ("aslr-off", "pagelab run --aslr off (or: setarch -R)")


def test_a_combination_of_which_nothing_was_cleared_stays_whole(tmp_path: Path) -> None:
    quarter = dict.fromkeys(("aslr", "pages", "cpu", "page-cache"), ("ruled-out", 0.25))
    assert combined(quarter, tmp_path).name == COMBINED
    assert combined(dict.fromkeys(quarter, ("ruled-out", 0.0)), tmp_path).name == COMBINED, "all: then it is none alone"


@pytest.fixture(scope="module", autouse=True)
def _small() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(allocate, "MOST_BLOCKS", 40)
        patch.setattr(allocate, "MOST_CONFIRMED", 60)
        yield None


@pytest.mark.by_turns(4)
def test_a_combination_is_confirmed_without_what_was_cleared_and_resumed_so(tmp_path: Path) -> None:
    """ASLR and the CPU are a cause each, so small that only both together show; nothing else matters."""

    def program(condition: Condition, random: np.random.Generator) -> float:
        held = (condition.request.aslr is False, bool(condition.request.cpus))
        noise = sum(random.normal(0, 0.03) * (not one) for one in held)
        return float(100 * np.exp(noise + random.normal(0, 0.004)))

    found = diagnosed(tmp_path, program)
    one = found.confirmation
    assert one is not None
    if one.source == "all of these":
        assert "pages" not in one.recommended or finding(found, "pages").verdict != "ruled-out"
        text = (tmp_path / "d" / "confirmation" / "study.toml").read_text()
        assert f'name = "{one.recommended}"' in text
    (tmp_path / "d" / "diagnosis.json").unlink()
    assert resume(tmp_path / "d", tools(program)).confirmation == one


@pytest.mark.by_turns(4)
def test_a_machine_with_block_effects_is_named(tmp_path: Path) -> None:
    """It becomes slower and faster again, slowly; the program does nothing but run."""
    count = iter(range(1_000_000))

    def program(_condition: Condition, random: np.random.Generator) -> float:
        return float(100 * np.exp(0.2 * np.sin(next(count) / 60)) * random.lognormal(0, 0.02))

    found = begin(settings(tmp_path), tmp_path / "d", tools(program))
    assert found.outcome == "unexplained"
    assert found.machine is not None
    assert found.machine.low > 0.8
    assert found.headline.startswith("The machine decides it: ")
    assert figures_of(found, Phases.load(tmp_path / "d", found))[0].id == "schedule"
    page = write(tmp_path / "d", found).read_text()
    assert page.index('data-chart="schedule"') < page.index('id="found"')
    told = io.StringIO()
    show(found, Console(file=told, width=100), tmp_path / "d")
    lines = told.getvalue().splitlines()
    assert lines[0].startswith("The machine decides it: ")
    assert any(line.startswith("default  ") and "spread" in line for line in lines[:6])
    assert any("▓ the machine " in line and "░ unexplained " in line for line in lines[:9])
    assert sum(line.startswith(("serious: ", "warning: ")) for line in lines) == 0, "the headline has said it"


@pytest.mark.by_turns(4)
def test_every_figure_of_a_diagnosis_has_its_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: under ``--level 0.99`` the machine's share had an interval of 95%, and the confirmation was planned
    for a mean at 95% and judged at 99%."""
    count, planned = iter(range(1_000_000)), []
    for_mean = allocate.for_mean

    def spied(sds: tuple[float, float], mean: float, unchanged: float, level: float = 0.95) -> int:
        planned.append(level)
        return for_mean(sds, mean, unchanged, level)

    def program(condition: Condition, random: np.random.Generator) -> float:
        slow = condition.request.aslr is not False and random.random() < 0.5
        return float(100 * np.exp(0.05 * np.sin(next(count) / 60) + 0.1 * slow) * random.lognormal(0, 0.003))

    monkeypatch.setattr(allocate, "for_mean", spied)
    found = begin(settings(tmp_path).model_copy(update={"level": 0.99}), tmp_path / "d", tools(program))
    assert found.machine is not None
    assert found.confirmation is not None
    assert found.confirmation.mean_shift is not None
    levels = {found.machine.level, found.default_spread.level, found.confirmation.mean_shift.level, *planned}
    levels |= {one.sd_ratio.level for one in found.findings if one.sd_ratio is not None}
    assert len(planned) == 2
    assert levels == {0.99}


def test_a_row_is_as_high_as_there_are_executions() -> None:
    times = np.array([0.007] * 30 + [0.013] * 10)
    axis, first, second = strip(
        [Row("default", times, "spread 30%"), Row("pinned", np.full(40, 0.007), "0%")], metric_named("wall_s")
    )
    assert axis.split() == ["7.00", "ms", "13.0", "ms"]
    cells = first[len("default  ") : len("default  ") + WIDTH]
    assert cells == "█" + " " * (WIDTH - 2) + "▃"
    assert first.endswith("  spread 30%")
    assert second.startswith("pinned   █ ")
    assert strip([Row("a", np.full(3, 1.0), "")], metric_named("wall_s")) == []


def test_the_bar_is_full_and_no_part_of_it_is_lost() -> None:
    assert bar([("█", 0.86), ("▓", 0.001), ("░", 0.139)], 40) == "█" * 34 + "▓" + "░" * 5
    assert bar([("█", 1.0), ("░", 0.0)], 10) == "█" * 10
    assert len(bar([("█", 0.999), ("▓", 0.0005), ("░", 0.0005)], 10)) == 10
