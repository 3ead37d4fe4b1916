"""Ten demos on one machine, one after another: what each found, and which of it the other nine confirm.

``python -m bench.demos DIR`` runs ``pagelab demo`` in DIR/01, DIR/02 … (six minutes each; a killed campaign goes on)
and writes ``bench/results/demos.md``. A change that a demo found is *confirmed* where the pairs of all other demos
together have a difference of the same sign whose 99% interval excludes zero: a study of about 45 minutes that had no
part in the finding. Otherwise it is counted as false.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from pagelab.machine.provenance import provenance
from pagelab.stats.paired import PairedRatio, Pairs, paired_ratio, pairs_of

Question = tuple[str, str, str, str]
"""Program, policy, baseline, metric."""

RESULTS = Path(__file__).parent / "results" / "demos.md"
LEVEL = 0.99
"""Level of the interval by which the other demos confirm a change."""
HALF_WIDTH, HALF_WIDTH_BESIDE, WIDEST, TRUE_CHANGES, RUNS_WITH_FALSE = 5.0, 8.0, 10.0, 5, 2
"""Goals: median and greatest half-width of a demo in percent; true changes in each; demos with a false one."""


@dataclass(frozen=True)
class Session:
    """One run of the demo, with the machine's load."""

    began: str
    took_s: float
    load: tuple[float, float]
    code: int


@dataclass(frozen=True)
class Found:
    """One planned comparison of one demo."""

    percent: float
    half_width: float
    """Half-width of the 95% interval, in percentage points; infinite if there is none."""
    changed: bool
    """Whether the test found a change, adjusted for all comparisons of the demo."""
    pairs: Pairs


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.demos", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--runs", type=int, default=10, help="0: only the summary of what there is (default: 10)")
    parser.add_argument("--beside", default="", help="what runs beside it, for the heading")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    for number in range(1, arguments.runs + 1):
        run(arguments.directory / f"{number:02}")
    done = sorted(path.parent for path in arguments.directory.glob("*/session.json"))
    if len(done) < 2:
        parser.error(f"{arguments.directory} has {len(done)} finished demos; a summary needs two")
    sessions = [_session(path) for path in done]
    arguments.out.write_text(document(sessions, [found_by(path) for path in done], arguments.beside))
    print(f"summary: {arguments.out}")
    return 0


def run(directory: Path) -> None:
    """One demo, unless it is finished; one that was interrupted is continued."""
    record = directory / "session.json"
    if record.exists():
        return
    directory.mkdir(parents=True, exist_ok=True)
    began, load, start = datetime.now(UTC), os.getloadavg()[0], time.monotonic()
    with (directory / "stdout").open("w") as out, (directory / "stderr").open("w") as err:
        code = subprocess.run(["pagelab", "demo", "--out", str(directory / "out")], stdout=out, stderr=err).returncode
    session = Session(began.isoformat(timespec="seconds"), time.monotonic() - start, (load, os.getloadavg()[0]), code)
    record.write_text(json.dumps(asdict(session)) + "\n")
    print(f"{directory}: exit code {code}, {session.took_s:.0f} s", flush=True)


def _session(directory: Path) -> Session:
    read = json.loads((directory / "session.json").read_text())
    return Session(**{**read, "load": tuple(read["load"])})


def found_by(directory: Path) -> dict[Question, Found]:
    """The planned comparisons of a demo, with their pairs."""
    analysis = json.loads((directory / "out" / "report" / "analysis.json").read_text())
    values: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for execution in analysis["executions"]:
        if execution["analysed"]:
            values[execution["workload"], execution["policy"]].append(execution)
    found = {}
    for contrast in analysis["contrasts"]:
        if not contrast["planned"]:
            continue
        program, policy, baseline, metric = (contrast[key] for key in ("workload", "policy", "baseline", "metric"))
        one, other = (
            [(each["values"][metric], each["block"]) for each in values[program, name]] for name in (policy, baseline)
        )
        pairs = pairs_of(
            [value for value, _ in one],
            [value for value, _ in other],
            treatment_blocks=[block for _, block in one],
            baseline_blocks=[block for _, block in other],
        )
        interval = contrast["relative_interval"]
        width = 50 * (interval["high"] - interval["low"]) if interval else float("inf")
        changed = contrast["verdict"] in ("lower", "higher")
        found[program, policy, baseline, metric] = Found(100 * contrast["relative"], width, changed, pairs)
    return found


def together(several: Sequence[Found]) -> PairedRatio:
    """The difference over the pairs of several demos, which are pairs of one study in several sittings."""
    joined = [
        [value for one in several for value in getattr(one.pairs.finished, side)] for side in ("treatment", "baseline")
    ]
    blocks = list(range(len(joined[0])))
    return paired_ratio(pairs_of(*joined, treatment_blocks=blocks, baseline_blocks=blocks), level=LEVEL)


def confirmed(found: Found, others: Sequence[Found]) -> bool:
    """Whether the other demos show the same change."""
    truth = together(others)
    low, high = getattr(truth.interval, "low", -1.0), getattr(truth.interval, "high", 1.0)
    return bool(low > 0 if found.percent > 0 else high < 0)


def document(sessions: Sequence[Session], demos: Sequence[dict[Question, Found]], beside: str) -> str:
    answers = [answered(demos, nth) for nth in range(len(demos))]
    asked: Counter[Question] = Counter(question for demo in demos for question in demo)
    lines = [
        f"# {len(demos)} demos, {_minute(sessions[0])} to {_minute(sessions[-1])} UTC",
        "",
        f"{provenance()['cpu']['model_name']}, {os.cpu_count()} CPUs, Linux {platform.release().split('-')[0]}; "
        f"{beside or 'nothing ran beside them'}. Each is `pagelab demo` as it is, one after another; written by "
        "`python -m bench.demos DIR`.",
        "",
        "Half-widths are of the 95% intervals, in percentage points. A change that a demo found (its test adjusted for "
        f"all of its comparisons) counts as true where the pairs of the other {len(demos) - 1} demos together show the "
        f"same sign with a {100 * LEVEL:.0f}% interval that excludes zero, else as false.",
        "",
        *verdicts(answers, bool(beside)),
        "",
        "| demo | began | took | load before, after | asked | median half-width | widest | found | true | false |",
        "|--:|---|--:|---|--:|--:|--:|--:|--:|--:|",
    ]
    for number, (session, demo, answer) in enumerate(zip(sessions, demos, answers, strict=True), 1):
        widest = max(demo, key=lambda question: demo[question].half_width)
        lines.append(
            f"| {number} | {session.began[11:16]} | {session.took_s / 60:.1f} min | {session.load[0]:.1f}, "
            f"{session.load[1]:.1f} | {len(demo)} | {answer.median:.1f} | {answer.widest:.1f} ({named(widest)}) | "
            f"{answer.true + answer.false} | {answer.true} | {answer.false} |"
        )
    lines += [
        "",
        f"| comparison | metric | all {len(demos)} together ({100 * LEVEL:.0f}% interval) | pairs | by each demo | "
        "half-widths | found in |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for question in asked:
        several = [demo[question] for demo in demos if question in demo]
        truth = together(several)
        low, high = getattr(truth.interval, "low", float("nan")), getattr(truth.interval, "high", float("nan"))
        widths, each = [one.half_width for one in several], [one.percent for one in several]
        lines.append(
            f"| {named(question)} | {question[3]} | {truth.percent:+.1f}% ({low:+.1f} … {high:+.1f}) | {truth.n} | "
            f"{min(each):+.1f} … {max(each):+.1f}% | {min(widths):.1f}–{max(widths):.1f} | "
            f"{sum(one.changed for one in several)} of {len(several)} |"
        )
    return "\n".join([*lines, ""])


@dataclass(frozen=True)
class Answered:
    """The conclusions of one demo, with the numbers of true and false ones."""

    median: float
    widest: float
    true: int
    false: int


def answered(demos: Sequence[dict[Question, Found]], nth: int) -> Answered:
    """The ``nth`` demo, judged by the others."""
    demo = demos[nth]
    widths = [found.half_width for found in demo.values()]
    others = [one for number, one in enumerate(demos) if number != nth]
    true = false = 0
    for question, found in demo.items():
        if found.changed:
            right = confirmed(found, [one[question] for one in others if question in one])
            true, false = true + right, false + (not right)
    return Answered(median(widths), max(widths), true, false)


def verdicts(answers: Sequence[Answered], beside: bool = False) -> list[str]:
    """Each goal, and in how many demos it was met; ``beside`` other programs there is one, of the half-widths."""
    runs = len(answers)
    width = HALF_WIDTH_BESIDE if beside else HALF_WIDTH
    narrow = sum(one.median <= width for one in answers)
    none_wide = sum(one.widest <= WIDEST for one in answers)
    enough = sum(one.true >= TRUE_CHANGES for one in answers)
    wrong = sum(one.false > 0 for one in answers)

    def goal(text: str, met: bool) -> str:
        return f" (goal: {text}: {'met' if met else '**missed**'})"

    def quiet(text: str, met: bool) -> str:
        return "" if beside else goal(text, met)

    return [
        f"- median half-width ≤ {width:g} in {narrow} of {runs}{goal('all', narrow == runs)}; the median "
        f"of the demos' medians is {median(one.median for one in answers):.1f}",
        f"- no half-width above {WIDEST:g} in {none_wide} of {runs}{quiet('all', none_wide == runs)}",
        f"- at least {TRUE_CHANGES} true changes in {enough} of {runs}{quiet('all', enough == runs)}",
        f"- a false change in {wrong} of {runs}"
        f"{quiet(f'at most {RUNS_WITH_FALSE} of 10', wrong <= RUNS_WITH_FALSE * runs / 10)}",
    ]


def _minute(session: Session) -> str:
    return session.began[:16].replace("T", " ")


def named(question: Question) -> str:
    program, policy, baseline, _ = question
    return f"{program}: {policy} against {baseline}"


if __name__ == "__main__":
    raise SystemExit(main())
