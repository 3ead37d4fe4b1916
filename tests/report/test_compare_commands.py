"""``pagelab compare 'CMD A' 'CMD B'``: real executions, interleaved, and the exit codes that scripts rely on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pagelab.study.pair import Pair, needs_shell
from pagelab.study.spec import parse

MS = r"(?P<name>\w+) (?P<value>[0-9.]+) (?P<unit>ms)"


def run(cwd: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pagelab", "compare", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


def test_a_slower_command_fails_the_gate_and_leaves_nothing_behind(tmp_path: Path) -> None:
    commands = ("echo op 5.0 ms", "echo op 6.0 ms", "--measure-regex", MS, "-n", 6)
    done = run(tmp_path, *commands, "--fail-if", "mean>3%")
    assert done.returncode == 1, done.stderr
    head = "A: echo op 5.0 ms\nB: echo op 6.0 ms\nop: B is 20.0% higher than A (95% interval 20.0–20.0%, 6 pairs, "
    assert done.stdout.startswith(head)
    assert "5.000 ms → 6.000 ms: +20.0% (+20.0% to +20.0%)\n" in done.stdout, "one verdict a page: the pairs'"
    assert "fail: mean>3% in A against B: the whole interval is beyond the limit" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_what_is_kept_can_be_judged_again(tmp_path: Path) -> None:
    done = run(
        tmp_path, "echo op 5 ms", "echo op 6 ms", "--measure-regex", MS, "-n", 6, "--into", "kept", "--fail-if",
        "mean>30%", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["commands"] == {"a": "echo op 5 ms", "b": "echo op 6 ms"}
    assert (found["outcome"], found["metric"], found["machine_differences"]) == ("pass", "measure.op", [])
    assert found["conditions"][0]["changes"]["mean-response-time"]["percent"]["value"] == pytest.approx(20)
    again = run(tmp_path, "kept", "--fail-if", "mean>3%")
    assert again.returncode == 1
    assert "B: echo op 6 ms" in again.stdout
    undecided = run(tmp_path, "kept", "--fail-if", "execution>3%")
    assert undecided.returncode == 3
    assert "inconclusive: execution>3%" in undecided.stdout


def test_executions_are_interleaved(tmp_path: Path) -> None:
    """Once each to see that they run, then blocks of both in random order."""
    log = tmp_path / "log"
    done = run(tmp_path, f"echo A >> {log}", f"echo B >> {log}", "-n", 12)
    assert done.returncode == 0, done.stderr
    order = log.read_text().split()
    assert sorted(order[:2]) == ["A", "B"]
    blocks = [tuple(order[i : i + 2]) for i in range(2, len(order), 2)]
    assert len(blocks) == 12
    assert set(blocks) == {("A", "B"), ("B", "A")}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("true", "sh -c 'exit 3'"), "B failed: exit code 3; nothing was compared"),
        (("no-such-program-here", "true"), "cannot find the program no-such-program-here"),
        (("true", ""), "B: the command is empty"),
        (("true", "echo 'open"), "B: cannot split"),
        (("true",), "compare true with what?"),
        (("true", "/"), "/ is a directory and true is none"),
        (("true", "true", "-n", "1"), "--executions 1: not within 2"),
        (("true", "true", "--cpu", "x"), "--cpu x: not a list of CPUs"),
        (("true", "true", "--measure-regex", "(?P<value>[0-9]+)"), "--measure-regex found nothing in the output"),
        (("true", "true", "--fail-if", "mean"), "METRIC one of"),
        (("true", "true", "--metric", "speed"), 'cannot be compared: metric: unknown metric "speed"; allowed: wall_s'),
        (("/", "/", "--executions", "5"), "--executions: only for commands"),
    ],
)
def test_bad_input_exits_2(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    done = run(tmp_path, *arguments)
    assert done.returncode == 2, done.stdout
    assert message in done.stderr
    assert "pagelab-compare-" not in done.stderr, "a file that is gone by now"


def test_a_command_gets_a_shell_only_where_it_needs_one() -> None:
    assert needs_shell("sort f | uniq")
    assert needs_shell("echo $HOME")
    assert not needs_shell("awk '{print $1 > 2}' f")
    study = parse(Pair(("sort f | uniq", "./b {x}"), "/tmp").study_toml(executions=3), "study.toml")
    assert study.workload[0].shell == "sort f | uniq"
    assert study.workload[1].command == ["./b", "{{x}}"]
