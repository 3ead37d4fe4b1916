"""study.toml: what is refused, and with which words; what conditions come of what is accepted."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import TWO_BY_TWO

from pagelab.study.errors import SpecError
from pagelab.study.plan import Plan
from pagelab.study.planning import plan_text

HEAD = 'name = "s"\n[[policy]]\nname = "kernel"\n'


def plan(text: str, here: Path = Path("/nowhere")) -> Plan:
    return plan_text(text, here / "study.toml", here / "out")


def refusal(text: str, here: Path = Path("/nowhere")) -> str:
    with pytest.raises(SpecError) as caught:
        plan(text, here)
    return str(caught.value)


WORK = '[[workload]]\nname = "w"\n'


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("name = \n", 1, ["not TOML"]),
        ('name = "s"\nexectuions = 3\n', 2, ["exectuions: unknown key; did you mean executions? Allowed: ", "warmups"]),
        ('name = "s"\nxyzzy = 3\n', 2, ["xyzzy: unknown key; allowed: answer, aslr, "]),
        ('name = "s"\nstr = 3\n', None, ["unknown key; allowed: answer, aslr, "]),
        ('name = "s"\n[quick]\nwarmup = 3\n', 3, ["quick.warmup: unknown key; did you mean warmups?"]),
        (
            HEAD + WORK + 'comand = "x"\n',
            6,
            ["workload[0].comand: unknown key; did you mean command?", "shell, stderr"],
        ),
        (HEAD + "page = 1\n", 4, ["policy[0].page: unknown key; did you mean pages?"]),
        ('name = "s"\nexecutions = 0\n', 2, ["executions", "greater than or equal to 1"]),
        ('name = "s"\nexecutions = "many"\n', 2, ["executions", "integer"]),
        # Values of another type were taken for one: 3, one execution, 0.9, one minute, CPU 1.
        ('name = "s"\nexecutions = "3"\n', 2, ["executions: Input should be a valid integer, not '3'"]),
        ('name = "s"\nexecutions = true\n', 2, ["executions: Input should be a valid integer, not True"]),
        ('name = "s"\nexecutions = 3.0\n', 2, ["executions: Input should be a valid integer, not 3.0"]),
        ('name = "s"\nlevel = "0.9"\n', 2, ["level: Input should be a valid number, not '0.9'"]),
        ('name = "s"\nminutes = true\n', 2, ["minutes: Input should be a valid number, not True"]),
        ('name = "s"\nco_run = "yes"\n', 2, ["co_run: Input should be a valid boolean, not 'yes'"]),
        ('name = "s"\nskip_impossible = 1\n', 2, ["skip_impossible: Input should be a valid boolean, not 1"]),
        ('name = "s"\ncpus = [true]\n', 2, ["cpus[0]: Input should be a valid integer, not True"]),
        (HEAD + WORK + 'command = "x"\ndrop_first = true\n', 7, ["drop_first: Input should be a valid integer"]),
        ('name = "s"\nminutes = "soon"\n', 2, ["minutes", "ms, s, min or h"]),
        ('name = "s"\nminutes = "1s"\n', 2, ["minutes", "greater than or equal to 0.05"]),
        ('name = "s"\naslr = "maybe"\n', 2, ["aslr", "'on', 'off' or 'keep'"]),
        ('name = "s"\ntimeout = "soon"\n', 2, ["timeout", "ms, s, min or h"]),
        ('name = "a b"\n', 1, ["name"]),
        ('name = "s"\n', None, ["workload: missing", "policy: missing"]),
        (HEAD + WORK + 'command = "a | b"\n', 6, ["needs a shell", 'shell = "…"']),
        (HEAD + WORK + 'command = """echo "it\'s" | grep -c "it\'s" """\n', 6, ["needs a shell"]),
        (HEAD + WORK + "command = []\n", 6, ["the command is empty"]),
        (HEAD + WORK, 4, ["workload[0]", "either command"]),
        (HEAD + WORK + 'command = "x"\nshell = "y"\n', 4, ["either command"]),
        (HEAD + WORK + 'command = "x"\nmeasure = { regex = "(" }\n', 7, ["does not compile"]),
        (HEAD + WORK + 'command = "x"\nmeasure = { regex = "a" }\n', 7, ["(?P<value>"]),
        (HEAD + WORK + 'command = "x"\nflush = { mode = "files" }\n', 7, ["files"]),
        (HEAD + WORK + 'command = "x"\nmetric = "speed"\n', 7, ['unknown metric "speed"', "wall_s", "measure.<name>"]),
        (
            HEAD + WORK + 'command = "x"\nmetric = "wal_s"\n',
            7,
            ['"wal_s"; did you mean wall_s? Allowed: wall_s, user_s'],
        ),
        (HEAD + WORK + 'command = "x"\npolicies = ["kernl"]\n', 7, ["did you mean kernel? Allowed: kernel"]),
        (HEAD + WORK + 'command = "x"\nmetric = "counter.tlb.walks"\n', 7, ["needs [counters]"]),
        (HEAD + WORK + 'command = "x"\npolicies = ["2M"]\n', 7, ['no policy is called "2M"', "kernel"]),
        (HEAD + WORK + 'command = "x {size}"\n', 4, ["{size} is no parameter", "write {{size}}"]),
        (HEAD + "[parameters]\nsize = [1]\n" + WORK + 'command = "x"\n', 5, ["nothing uses {size}"]),
        (HEAD + WORK + 'command = "x"\n' + WORK + 'command = "y"\n', 8, ["a second workload"]),
        ('baseline = "other"\n' + HEAD + WORK + 'command = "x"\n', 1, ['no policy is called "other"']),
        (HEAD + 'file = "p.toml"\n' + WORK + 'command = "x"\n', 4, ["cannot read /nowhere/p.toml"]),
        (HEAD + 'file = "p"\npages = "2M"\n' + WORK + 'command = "x"\n', 2, ["exclude each other"]),
        (HEAD + WORK + 'command = "x"\n[[exclude]]\nsise = 1\n', 8, ["unknown key; allowed: policy, workload"]),
        (HEAD + WORK + 'command = "x"\n[[exclude]]\nplicy = "a"\n', 8, ["unknown key; did you mean policy?"]),
        (HEAD + WORK + 'command = "x"\n[[exclude]]\nworkload = "w"\n', 7, ["every condition"]),
        (HEAD + WORK + 'command = "x"\n[precision]\ntarget = "2%"\nlooks = [10]\n', 9, ["greater than or equal to 20"]),
        (HEAD + WORK + 'command = "x"\n[precision]\ntarget = "2%"\nlooks = [40, 20]\n', 7, ["ascend"]),
        (
            "executions = 3\n" + HEAD + WORK + 'command = "x"\n[precision]\ntarget = 0.02\nlooks = [20]\n',
            None,
            ["exclude"],
        ),
    ],
)
def test_bad_settings_are_heard(text: str, line: int | None, words: list[str]) -> None:
    message = refusal(text)
    told = next((part for part in message.splitlines() if words[0] in part), message)
    assert told.startswith("/nowhere/study.toml: " if line is None else f"/nowhere/study.toml:{line}: "), message
    for word in words:
        assert word in message


def test_times_of_a_study_are_written_as_on_the_command_line() -> None:
    assert plan('minutes = "90s"\n' + HEAD + WORK + 'command = "x"\n').minutes == 1.5
    assert plan("minutes = 2\n" + HEAD + WORK + 'command = "x"\ntimeout = 5\n').minutes == 2.0


def test_a_command_of_several_lines_is_one_command() -> None:
    (one,) = plan(HEAD + WORK + 'command = """\necho a\n  b"""\n').conditions
    assert one.request.argv == ["echo", "a", "b"]


def test_every_problem_is_reported_at_once() -> None:
    assert len(refusal('name = "s"\nseed = -1\nlevel = 2\n').splitlines()) == 4


def test_conditions_are_workloads_times_policies() -> None:
    found = plan(TWO_BY_TWO)
    assert [condition.name for condition in found.conditions] == ["a/kernel", "a/4K", "b/kernel", "b/4K"]
    assert [condition.baseline for condition in found.conditions] == [True, False, True, False]
    assert found.conditions[1].request.policy_toml == 'name = "4K"\npages = "4K"\n'


def test_parameters_multiply_only_where_they_are_used() -> None:
    found = plan(
        'name = "s"\nbaseline = "kernel"\n[parameters]\nsize = ["64M", "1G"]\nkb = [0, 128]\n'
        '[[policy]]\nname = "kernel"\n[[policy]]\nname = "ra"\nsetup = "echo {kb}"\n'
        '[[workload]]\nname = "gups"\ncommand = ["gups", "{size}", "{{size}}", "${HOME}"]\n'
        '[[workload]]\nname = "plain"\ncommand = "true"\n'
        '[[exclude]]\nworkload = "gups"\nsize = "1G"\nkb = 128\n'
    )
    assert [condition.name for condition in found.conditions] == [
        "gups size=64M/kernel",
        "gups size=1G/kernel",
        "gups size=64M/ra kb=0",
        "gups size=64M/ra kb=128",
        "gups size=1G/ra kb=0",
        "plain/kernel",
        "plain/ra kb=0",
        "plain/ra kb=128",
    ]
    assert found.conditions[1].request.argv == ["gups", "1G", "{size}", "${HOME}"]
    assert found.conditions[3].setup[0].argv == ["/bin/sh", "-c", "echo 128"]


def test_a_baseline_with_its_own_parameter_is_refused() -> None:
    text = 'name = "s"\n[parameters]\nkb = [1, 2]\n[[policy]]\nname = "p"\nsetup = "echo {kb}"\n'
    assert "several baselines" in refusal(text + WORK + 'command = "x"\n')


def test_policy_files_and_layouts_are_part_of_the_digest(tmp_path: Path) -> None:
    text = 'name = "s"\n[[policy]]\nname = "p"\nfile = "p.toml"\n' + WORK + 'command = "x"\n'
    (tmp_path / "p.toml").write_text('[[rule]]\nmemory = "heap"\npages = { csv = "l.csv" }\n')
    (tmp_path / "l.csv").write_text("type,pageSize,startOffset,endOffset\n")
    before = plan(text, tmp_path)
    assert sorted(before.inputs) == [str(tmp_path / "l.csv"), str(tmp_path / "p.toml")]
    (tmp_path / "l.csv").write_text("type,pageSize,startOffset,endOffset\nbrk,2097152,0,2097152\n")
    assert plan(text, tmp_path).digest != before.digest


def test_paths_count_from_the_study_file() -> None:
    found = plan(HEAD + WORK + 'command = "x"\ncwd = "sub"\nstdin = "in"\nstdout = "{out}/o"\n')
    condition = found.conditions[0]
    assert (condition.request.cwd, condition.request.stdin) == ("/nowhere/sub", "/nowhere/sub/in")
    assert condition.request.stdout == "/nowhere/out/o"


def test_warm_up_measurements_and_the_test_are_part_of_the_plan(tmp_path: Path) -> None:
    text = """
name = "s"
test = "stratified"
drop_first = 3
[[policy]]
name = "p"
[[workload]]
name = "long"
command = "true"
[[workload]]
name = "short"
command = "true"
drop_first = 0
"""
    found = plan_text(text, tmp_path / "s.toml", tmp_path / "out")
    assert found.test == "stratified"
    assert [condition.drop_first for condition in found.conditions] == [3, 0]
    plain = plan_text(text.replace('test = "stratified"\ndrop_first = 3\n', ""), tmp_path / "s.toml", tmp_path / "out")
    assert (plain.test, [condition.drop_first for condition in plain.conditions]) == ("pairs", [0, 0])


@pytest.mark.parametrize(
    ("line", "words"), [('test = "sign"', "'pairs', 'rank-sum' or 'stratified'"), ("drop_first = -1", "drop_first")]
)
def test_an_impossible_test_or_warm_up_is_refused(tmp_path: Path, line: str, words: str) -> None:
    text = f'name = "s"\n{line}\n[[policy]]\nname = "p"\n[[workload]]\nname = "w"\ncommand = "true"\n'
    with pytest.raises(SpecError, match=words):
        plan_text(text, tmp_path / "s.toml", tmp_path / "out")


def test_factors_are_what_a_workload_says_of_itself_or_its_parameters() -> None:
    text = HEAD + '[parameters]\nsize = ["half", "double"]\n'
    said = 'command = "x {size}"\nfactors = { language = "java", size = "{size}" }\n'
    planned = plan(text + WORK + said + '[[workload]]\nname = "v"\ncommand = "y {size}"\n')
    assert [condition.factors for condition in planned.conditions] == [
        {"language": "java", "size": "half"},
        {"language": "java", "size": "double"},
        {"workload": "v", "size": "half"},
        {"workload": "v", "size": "double"},
    ]
    unused = refusal(text + WORK + 'command = "x"\nfactors = { size = "{size}" }\n')
    assert "the command does not use {size}" in unused
