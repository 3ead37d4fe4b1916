"""The answers of ``pagelab compare --minutes 1`` for a memory-bound pair: 3% more work, and none, in turns.

``python -m bench.minute`` takes a little over a minute for each question. Answers are lines of
``bench/results/minute.jsonl``, to which each call adds; the summary is ``bench/results/minute.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from pagelab.machine.provenance import provenance

from .power.work import MEBIBYTES, calibrated, compiled

RESULTS = Path(__file__).parent / "results"
PLANTED = (0.0, 0.03)
GOAL = 3.0
"""Half-width in percent."""


@dataclass(frozen=True)
class Answer:
    """One comparison; estimate and 95% interval of B's change in percent of A, within pairs."""

    at: str
    planted: float
    seconds: float
    load: float
    pairs: int
    metric: str
    percent: float
    low: float
    high: float
    said: str

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.minute", description=__doc__)
    parser.add_argument("--questions", type=int, default=10, help="0: only the summary of what there is (default: 10)")
    questions: int = parser.parse_args().questions
    file = RESULTS / "minute.jsonl"
    with tempfile.TemporaryDirectory(prefix="pagelab-minute-") as scratch:
        work = calibrated(compiled(Path(scratch))) if questions else None
        for number in range(questions):
            assert work is not None
            planted = PLANTED[number % len(PLANTED)]
            answer = asked(work.commands("memory", planted), planted, number + 1)
            with file.open("a") as out:
                out.write(json.dumps(asdict(answer)) + "\n")
            print(row(answer), flush=True)
    if not file.exists():
        parser.error(f"{file} does not exist: no answers yet")
    answers = [Answer(**json.loads(line)) for line in file.read_text().splitlines()]
    (RESULTS / "minute.md").write_text(document(answers))
    return 0


def asked(commands: Sequence[Sequence[str]], planted: float, seed: int) -> Answer:
    at, load, began = datetime.now(UTC).isoformat(timespec="seconds"), os.getloadavg()[0], time.monotonic()
    lines = [shlex.join(words) for words in commands]
    words = ["pagelab", "compare", "--json", "--minutes", "1", "--seed", str(seed), *lines]
    told = json.loads(subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout)
    return read(told, at, planted, time.monotonic() - began, load)


def read(told: dict[str, object], at: str, planted: float, seconds: float, load: float) -> Answer:
    """An answer out of ``pagelab compare --json``."""
    conditions = told["conditions"]
    assert isinstance(conditions, list)
    pairs = conditions[0]["in_pairs"]
    ratio = pairs["ratio"]
    percent, low, high = (float(ratio[name]) for name in ("value", "low", "high"))
    return Answer(at, planted, seconds, load, pairs["pairs"], str(told["metric"]), percent, low, high, pairs["said"])


def row(answer: Answer) -> str:
    return (
        f"| {answer.at[11:16]} | {answer.load:.1f} | {answer.planted:.0%} | {answer.seconds:.0f} s | {answer.pairs} | "
        f"{answer.metric} | {answer.percent:+.2f}% ({answer.low:+.2f} … {answer.high:+.2f}) | "
        f"{answer.half_width:.2f} | {answer.said} |"
    )


def document(answers: Sequence[Answer]) -> str:
    wide = [answer for answer in answers if answer.half_width > GOAL]
    same = [answer for answer in answers if answer.planted == 0]
    more = [answer for answer in answers if answer.planted > 0]
    changed = ("lower", "higher")
    false = sum(answer.said in changed for answer in same)
    seen = sum(answer.said in changed and answer.percent > 0 for answer in more)
    held = sum(answer.low <= 100 * answer.planted <= answer.high for answer in answers)
    return "\n".join(
        [
            f"# A memory-bound pair, compared for one minute, {answers[0].at[:16].replace('T', ' ')} to "
            f"{answers[-1].at[:16].replace('T', ' ')} UTC",
            "",
            f"{provenance()['cpu']['model_name']}, {os.cpu_count()} CPUs, Linux {platform.release().split('-')[0]}. "
            f"Updates at random places of {MEBIBYTES} MiB; B does as much work as A, or 3% more, in turns. "
            "`pagelab compare --minutes 1 A B`; written by `python -m bench.minute`.",
            "",
            f"- half-width ≤ {GOAL:g}% in {len(answers) - len(wide)} of {len(answers)} (median "
            f"{median(answer.half_width for answer in answers):.2f}%)",
            f"- of 3% more work, a change found in {seen} of {len(more)}; of the same work, in {false} of {len(same)}",
            f"- the interval holds the planted difference in {held} of {len(answers)}",
            "",
            "| began | load | planted | took | pairs | metric | change (95% interval) | half-width | answer |",
            "|---|--:|--:|--:|--:|---|--:|--:|---|",
            *(row(answer) for answer in answers),
            "",
        ]
    )


if __name__ == "__main__":
    raise SystemExit(main())
