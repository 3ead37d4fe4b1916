"""``pagelab compare 'CMD A' 'CMD B'``: real executions, interleaved, and the exit codes that scripts rely on."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import pytest

from pagelab.analysis import analyse, load
from pagelab.analysis.limits import limits_of
from pagelab.report import charts
from pagelab.study.pair import Pair
from pagelab.study.shell import needs_shell
from pagelab.study.sides import again, kept
from pagelab.study.spec import read
from pagelab.study.store import Store

MS = r"(?P<name>\w+) (?P<value>[0-9.]+) (?P<unit>ms)"


def run(cwd: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pagelab", "compare", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


@pytest.fixture(scope="module")
def kept_pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the study of a command and one that says 20% more, six times each."""
    here = tmp_path_factory.mktemp("pair")
    done = run(here, "echo op 5 ms", "echo op 6 ms", "--measure-regex", MS, "-n", 6, "--into", "kept")
    assert done.returncode == 0, done.stderr
    return here


def test_a_slower_command_fails_the_gate_and_leaves_nothing_behind(tmp_path: Path) -> None:
    commands = ("echo op 5.0 ms", "echo op 6.0 ms", "--measure-regex", MS, "-n", 6)
    done = run(tmp_path, *commands, "--fail-if", "mean>3%")
    assert done.returncode == 1, done.stderr
    head = "op: B is 20.0% higher than A (95% interval 20.0–20.0%, 6 pairs, p = 0.031)\n\n"
    assert done.stdout.startswith(f"{head}A: echo op 5.0 ms\nB: echo op 6.0 ms\n\n"), (
        "no limit on the ratio: no verdict"
    )
    assert "5.000 ms → 6.000 ms: +20.0% (+20.0% to +20.0%)\n" in done.stdout, "one verdict a page: the pairs'"
    assert "fail: mean>3% in A against B: the whole interval is beyond the limit" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("limits", "code", "verdict"),
    [
        (("ratio>3%",), 1, "FAIL, limit 3%"),
        (("ratio>30%",), 0, "PASS, limit 30%"),
        (("ratio<-3.5%",), 0, "PASS, limit −3.5%"),
        (("ratio>30%", "ratio>3%", "mean>30%"), 3, "INCONCLUSIVE, limit 30%"),  # three judgements of six pairs
    ],
)
def test_a_limit_on_the_ratio_is_judged_in_the_first_line(
    kept_pair: Path, limits: tuple[str, ...], code: int, verdict: str
) -> None:
    done = run(kept_pair, "kept", *(word for limit in limits for word in ("--fail-if", limit)))
    assert done.returncode == code, done.stdout
    first, _, a, b, *rest = done.stdout.splitlines()
    assert first.startswith("op: B is 20.0% higher than A")
    assert first.endswith(f": {verdict}")
    assert (a, b) == ("A: echo op 5 ms", "B: echo op 6 ms")
    row = next(line for line in rest if line.startswith("B  "))
    assert row.endswith("20.0% higher; median 6.000 ms")
    assert any(line.startswith("A  ") and line.endswith("median 5.000 ms") for line in rest)
    if limits == ("ratio>3%",):
        assert row.index("│") < row.index("┊") < row.index("●"), "both, and the limit, on one axis"
        assert "┊ limit 3%" in rest


@pytest.mark.by_turns(4)
def test_the_report_of_two_commands_is_of_their_comparison(kept_pair: Path) -> None:
    """They are two workloads, and policies of one workload are what a report compares."""
    command = [sys.executable, "-m", "pagelab", "report", "kept", "--format", "html", "--format", "data"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=kept_pair)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("op: B is 20.0% higher than A (95% interval 20.0–20.0%, 6 pairs, p = 0.031).\n")
    assert "next: pagelab compare " in done.stdout
    found = json.loads((kept_pair / "kept/report/analysis.json").read_text())
    assert found["design"]["commands"] == {"A": "echo op 5 ms", "B": "echo op 6 ms"}
    planned = [one for one in found["contrasts"] if one["planned"]]
    assert [(one["policy"], one["baseline"], one["verdict"]) for one in planned] == [("B", "A", "higher")]
    assert "two commands · 12 executions" in (kept_pair / "kept/report/index.html").read_text()


@pytest.mark.by_turns(4)
def test_the_report_of_one_command_names_the_settings(tmp_path: Path) -> None:
    asked = (SAYS_OP, "--env", "OP=10", "--env", "OP=15", "--measure-regex", MS, "-n", 6, "--into", "kept")
    assert run(tmp_path, *asked).returncode == 0
    command = [sys.executable, "-m", "pagelab", "report", "kept", "--format", "data"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.startswith("op: sh is 50.0% higher under OP-15 than under OP-10 ("), done.stderr


@pytest.mark.by_turns(4)
def test_where_the_report_cannot_tell_its_next_command_is_more_of_the_same(tmp_path: Path) -> None:
    asked = ("echo op 5 ms", "echo op 6 ms", "--measure-regex", MS, "-n", 3, "--into", "kept")
    assert run(tmp_path, *asked).returncode == 0
    command = [sys.executable, "-m", "pagelab", "report", "kept", "--format", "data"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    line = next(line for line in done.stdout.splitlines() if line.startswith("next: "))
    words = shlex.split(line.removeprefix("next: "))
    assert words[:4] == ["pagelab", "compare", "echo op 5 ms", "echo op 6 ms"]
    assert words[4:-1] == ["--metric", "measure.op", "--measure-regex", MS, "--executions"]
    assert int(words[-1]) >= 6


@pytest.mark.by_turns(4)
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


SAYS_OP = """sh -c 'echo "op $OP ms"'"""


def test_one_command_under_two_settings(tmp_path: Path) -> None:
    """The program reports what the variable says, so the truth is known: half as much again."""
    asked = (SAYS_OP, "--env", "OP=10", "--env", "OP=15", "--env", "LANG=C", "--measure-regex", MS, "-n", 6)
    done = run(tmp_path, *asked, "--into", "kept", "--fail-if", "ratio>3%")
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("op: B is 50.0% higher than A (50.0–50.0%): FAIL, limit 3%\n")
    assert f"A: {SAYS_OP}, with --env OP=10 --env LANG=C\n" in done.stdout
    with Store.open(tmp_path / "kept", write=False) as store:
        assert [one.name for one in store.plan().conditions] == ["sh/OP-10", "sh/OP-15"]
    # The page that is made of it says so, too; with further executions it would be another judgement.
    with Store.open(tmp_path / "kept", write=False) as store:
        page = analyse(load(store))
    assert page.headline.startswith("op: sh is 50.0% higher under OP-15 than under OP-10 (")
    assert page.headline.endswith("): FAIL, limit 3%.")
    assert limits_of([{"kind": "limits", "data": {"runs": 12, "judged": [["ratio>3%", "fail"]]}}], 24) == ()
    lines = [row for part in charts.forest(page)["datasets"].values() for row in part if "limit" in row]
    assert lines == [{"limit": pytest.approx(3.0), "text": "limit 3%"}]
    again = run(tmp_path, "kept", "--fail-if", "ratio>3%", "--json")
    assert again.returncode == 1, again.stderr
    found = json.loads(again.stdout)
    assert [found["settings"][side]["env"] for side in "ab"] == [{"OP": "10", "LANG": "C"}, {"OP": "15", "LANG": "C"}]
    assert found["conditions"][0]["in_pairs"]["ratio"]["value"] == pytest.approx(50)


def test_two_commands_have_one_setting_or_one_each(tmp_path: Path) -> None:
    """Variables come out as each command says them; CPUs, addresses and pages as the records have them."""
    policy = tmp_path / "huge.toml"
    policy.write_text('pages = "2M"\n')
    print_it = """python3 -c 'import os; print("op", os.environ["OP"], "ms")' {}"""
    asked = (print_it.format("a"), print_it.format("b"), "--env", "OP=5", "--env", "OP=6", "--aslr", "on")
    flags = ("--aslr", "off", "--cpu", min(os.sched_getaffinity(0)), "--policy", policy)
    done = run(tmp_path, *asked, *flags, "--measure-regex", MS, "-n", 2, "--into", "kept", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [found["conditions"][0]["changes"]["mean-response-time"][side]["value"] for side in "ab"] == [5, 6]
    assert [found["settings"][side]["aslr"] for side in "ab"] == ["on", "off"]
    with Store.open(tmp_path / "kept", write=False) as store:
        data = load(store)
    assert [one.workload_name for one in data.plan.conditions] == ["A", "B"]
    records = dict(data.records)
    for run_id, condition in data.runs.select("run_id", "condition").iter_rows():
        assert records[run_id].settings.aslr == condition.startswith("A/")
        assert records[run_id].settings.cpus == [min(os.sched_getaffinity(0))]
        assert 'pages = "2M"' in records[run_id].policy.toml
    cpu = str(min(os.sched_getaffinity(0)))
    a, b = kept(data.plan)
    assert a.chosen == {"pages": "2M", "cpu": cpu, "aslr": "on", "env OP": "5"}
    expected = f"--pages 2M --cpu {cpu} --aslr on --aslr off --env OP=5 --env OP=6"
    assert shlex.join((again((a, b)) or [])[4:]) == expected


def test_what_flags_cannot_say_is_a_policy_of_the_study(tmp_path: Path) -> None:
    done = run(tmp_path, "true", "--pages", "kernel", "--pages", "heap=2M", "-n", 2, "--into", "kept")
    assert done.returncode == 0, done.stderr
    assert "B: true, with --pages heap=2M\n" in done.stdout
    with Store.open(tmp_path / "kept", write=False) as store:
        a, b = kept(store.plan())
    assert (a.chosen, b.chosen) == ({}, {"policy": str(tmp_path / "kept/policies/heap-2M.toml")})
    assert again((a, b)) is None


@pytest.mark.by_turns(4)
def test_commands_that_take_longer_than_their_time_say_what_would_do(tmp_path: Path) -> None:
    """And name no directory that is gone."""
    for commands, told in (
        (("sleep 0.4", "sleep 0.4"), "show a difference, do not fit into 0.05 min; give it --minutes 0."),
        (("sleep 60", "sleep 60"), "so the time needed is not known; try --minutes 10"),
    ):
        done = run(tmp_path, *commands, "--minutes", "0.05")
        assert done.returncode == 2
        assert told in done.stderr
        assert "resume" not in done.stderr


@pytest.mark.parametrize("into", [(), ("--into", "kept")])
def test_what_is_not_kept_cannot_be_continued_after_an_interruption(tmp_path: Path, into: tuple[str, ...]) -> None:
    """Regression: after Ctrl-C ``compare`` named a ``study resume`` of a directory that it removed."""
    log = tmp_path / "log"
    command = f"echo x >> {log}; sleep 0.1"
    words = [sys.executable, "-m", "pagelab", "compare", command, command + " ", "-n", "5000", *into]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as running:
        deadline = monotonic() + 120
        while not (log.exists() and len(log.read_text()) > 2 * 4) and monotonic() < deadline:
            sleep(0.05)
        running.send_signal(signal.SIGINT)
        _, error = running.communicate(timeout=60)
    assert running.returncode == 130, error
    if into:
        assert f"continue with: pagelab study resume {tmp_path / 'kept'}\n" in error
        with Store.open(tmp_path / "kept", write=False) as store:
            assert store.finished()
    else:
        last = error.splitlines()[-1]
        assert last == ("pagelab: stopped by SIGINT; nothing is kept; begin with --into DIR to be able to continue")


def test_a_trial_that_failed_leaves_the_directory_free(tmp_path: Path) -> None:
    """Regression: the same command with another program was refused, since --into had the trial that failed."""
    assert run(tmp_path, "true", "false", "--into", "kept").returncode == 2
    assert list(tmp_path.iterdir()) == []


def test_a_time_that_is_too_short_leaves_the_directory_free(tmp_path: Path) -> None:
    """Regression: the command with the --minutes that it named was refused, since --into had the executions so far."""
    done = run(tmp_path, "sleep 0.6", "sleep 0.7", "--minutes", "0.05", "--into", "kept")
    assert done.returncode == 2
    assert "give it --minutes" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.by_turns(4)
def test_a_time_is_used_in_whole_pairs(tmp_path: Path) -> None:
    """The two have nothing in common but the block: one as short as the other is long still runs as often."""
    commands = ("sleep 0.01", "sleep 0.1")
    done = run(tmp_path, *commands, "--minutes", "0.08", "--into", "kept")
    assert done.returncode == 0, done.stderr
    with Store.open(tmp_path / "kept", write=False) as store:
        runs = store.runs()
        counts = runs.group_by("condition").len()["len"].to_list()
    assert counts[0] == counts[1] >= 6
    assert "--executions and --minutes exclude" in run(tmp_path, *commands, "--minutes", "1", "-n", "5").stderr


@pytest.mark.by_turns(4)
def test_executions_that_were_added_are_a_further_look_here_too(tmp_path: Path) -> None:
    """Regression: the report of the same directory spent the level over both looks, and this did not."""
    run(tmp_path, "sleep 0.01", "sleep 0.012", "-n", 7, "--into", "kept")
    resume = [sys.executable, "-m", "pagelab", "study", "resume", "kept", "--executions", "9"]
    subprocess.run(resume, check=True, capture_output=True, cwd=tmp_path)
    done = run(tmp_path, "kept")
    assert "(97.5% interval " in done.stdout.splitlines()[0]
    assert "executions were added after 1 look, each of which had twice the error of the next: judged at" in done.stdout
    assert json.loads(run(tmp_path, "kept", "--json").stdout)["level"] == pytest.approx(0.975)


@pytest.mark.by_turns(4)
def test_the_level_is_part_of_the_study(tmp_path: Path) -> None:
    """Regression: the report, and every later comparison, judged what was run for 99% at 95%."""
    asked = ("echo op 5 ms", "echo op 6 ms", "--measure-regex", MS, "--level", "0.99", "-n", 7, "--into", "kept")
    first = run(tmp_path, *asked).stdout.splitlines()[0]
    assert "cannot tell: 7 pairs, 8 are the fewest" in first
    with Store.open(tmp_path / "kept", write=False) as store:
        assert store.plan().level == 0.99
    again = run(tmp_path, "kept").stdout
    assert again.splitlines()[0] == first
    assert "--measure-regex" in again
    assert " --level 0.99 " in again
    assert "cannot tell" not in run(tmp_path, "kept", "--level", "0.95").stdout.splitlines()[0]


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
        (
            ("true", "sh -c 'exit 3'"),
            "B failed: exit code 3; nothing was compared; run it alone: pagelab run -- sh -c 'exit 3'",
        ),
        (("true", "sh -c 'echo why >&2; exit 3'"), "B failed: exit code 3: why; nothing was compared; run it alone: "),
        (("no-such-program-here", "true"), "cannot find the program no-such-program-here"),
        (("true", ""), "B: the command is empty"),
        (("true", "echo 'open"), "B: cannot split"),
        (("true",), "compare true with what?"),
        (
            ("sort", "-n", "numbers.txt"),
            'pagelab compare takes each command as one argument, in quotes: pagelab compare "sort -n numbers.txt" '
            '"OTHER"; for two settings of one command: pagelab try --pages 4K --pages 2M -- sort -n numbers.txt',
        ),
        (("--", "sort", "-n", "numbers.txt"), 'in quotes: pagelab compare "sort -n numbers.txt" "OTHER"; '),
        (("true", "true", "-n", "five"), "unable to parse string as an integer"),
        (("true", "/"), "/ is a directory and true is none"),
        (("true", "true", "-n", "1"), "--executions 1: not within 2"),
        (("true", "true", "--cpu", "x"), "--cpu x: not a list of CPUs"),
        (("true", "true", "--measure-regex", "(?P<value>[0-9]+)"), "--measure-regex found nothing in the output"),
        (("true", "true", "--fail-if", "mean"), "METRIC one of"),
        (("true", "true", "--metric", "speed"), 'cannot be compared: metric: unknown metric "speed"; allowed: wall_s'),
        (("/", "/", "--executions", "5"), "--executions: only for commands"),
        (("/", "/", "--pages", "2M", "--env", "A=1"), "--pages, --env: only for commands"),
        (("ls", "--pages", "2M"), "two settings of this one: pagelab compare ls --pages kernel --pages 2M"),
        (("ls", "--aslr", "on"), "pagelab compare ls --aslr off --aslr on"),
        (("ls", "--env", "A=1", "--env", "A=1"), "--env A=1 is given twice: A and B would be the same"),
        (
            ("ls", "--pages", "4K", "--pages", "2M", "--pages", "64K"),
            "A and B are two; for more settings of one command: pagelab try --pages 4K --pages 2M --pages 64K -- ls",
        ),
        (("ls", "ls", "--pages", "3K"), '--pages 3K: "3K" is not a page size'),
        (("ls", "ls", "--aslr", "maybe"), "--aslr maybe: allowed: on, off"),
        (("ls", "--env", "A", "--env", "B"), "--env A: not of the form NAME=VALUE"),
        (("ls", "--policy", "a.toml", "--policy", "b.toml"), "a.toml: cannot read the file"),
        (("", "--env", "A=1", "--env", "A=2"), "A and B: the command is empty"),
        (
            ("sh -c 'exit $A'", "--env", "A=0", "--env", "A=7"),
            "nothing was compared; run it alone: pagelab run --env A=7 --",
        ),
    ],
)
def test_bad_input_exits_2(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    done = run(tmp_path, *arguments)
    assert done.returncode == 2, done.stdout
    assert message in done.stderr
    assert "pagelab-compare-" not in done.stderr, "a file that is gone by now"


@pytest.mark.parametrize(
    ("command", "needed"),
    [
        ("sort f | uniq", True),
        ("echo $HOME", True),
        ("awk '{print $1 > 2}' f", False),
        # Apostrophes in double quotes quote nothing.
        ("""echo "it's" | (sleep 0.3; grep -c "it's")""", True),
        ("""echo "it's" > f; echo 'a "b'""", True),
        ("""echo 'say "' | wc -c; echo '"'""", True),
        ('echo "a;b" "it\'s"', False),
        ('echo "$HOME" "`pwd`"', True),
        ("echo '$HOME' '`pwd`'", False),
        (r"echo a\|b \"", False),
        (r'echo \" | wc "', True),
        # shlex keeps this backslash, a shell does not.
        (r'echo "\$5"', True),
        ("cp f.{c,h} d", True),
        ("cp 'f.{c,h}' d", False),
        ("sleep 1\nsleep 2", True),
        ("sleep 1\n", False),
        ("sort 'a\nb'", False),
        ("sort f # the file", True),
        ("sort f#1 '#'", False),
        ("echo it's", False),
    ],
)
def test_what_needs_a_shell(command: str, needed: bool) -> None:
    assert needs_shell(command) is needed


def test_a_command_gets_a_shell_only_where_it_needs_one(tmp_path: Path) -> None:
    study = read(Pair(("sort f | uniq", "./b {x}"), "/tmp").write(tmp_path, {"executions": 3}))
    assert study.workload[0].shell == "sort f | uniq"
    assert study.workload[1].command == ["./b", "{{x}}"]


@pytest.mark.by_turns(4)
def test_commands_that_only_wait_for_a_processor_are_compared_by_processor_time(tmp_path: Path) -> None:
    """Four programs on one processor, of which ours is one; the same with nobody beside it would be wall time."""
    cpu = min(os.sched_getaffinity(0))
    busy = [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{cpu}}})\nwhile True: pass"]
    others = [subprocess.Popen(busy) for _ in range(3)]
    command = shlex.join([sys.executable, "-c", "sum(range(2_000_000))"])
    try:
        chosen = run(tmp_path, command, command, "--cpu", cpu, "-n", 6, "--json")
        shown = run(tmp_path, command, command, "--cpu", cpu, "-n", 6)
        named = run(tmp_path, command, command, "--cpu", cpu, "-n", 6, "--metric", "wall_s", "--json")
    finally:
        for other in others:
            other.kill()
            other.wait()
    found = json.loads(chosen.stdout)
    assert found["metric"] == "cpu_s", chosen.stderr
    assert "it waited for a processor in " in found["metric_why"]
    assert "\nCPU time is compared: it waited for a processor in " in shown.stdout
    told = json.loads(named.stdout)
    assert (told["metric"], told["metric_why"]) == ("wall_s", "")
