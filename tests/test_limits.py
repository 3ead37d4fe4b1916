"""Every command group under tight limits of memory, processes and descriptors: it works, or soon says why not."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from harness.launching import open_to_all

MIB = 1 << 20
PATIENCE_S = 30.0
"""Of processor time and, where nothing else runs, of real time."""
COMMANDS = {
    "run": "run --pages 2M -- true",
    "map": "map -- true",
    "stat": "stat 1",
    "study": "study run {here}/s.toml --into out.study",
    "report": "report s.study --out out.report",
    "trace": "trace capture --full -o out.trace -- true",
    "trace-info": "trace info t.trace",
    "diagnose": "diagnose --minutes 0.05 --into out.diagnosis -- true",
    "advise": "advise --minutes 0.1 --into out.advice -- true",
    "compare": "compare s.study s.study",
    "model-import": "model import m.csv --into out.model",
    "model-fit": "model fit m.model",
    "model-run": "model run --minutes 0.2 --into out.model -- true",
    "predict": "predict fitted.model --h 22 --m 20 --c 130",
    "try": "try --pages 4K --pages 2M --minutes 0.1 --into out.try -- true",
    "import": "import f.csv --into out.import",
    "doctor": "doctor --no-noise",
    "simulate-model": "simulate model --colors 1,2",
    "simulate-paging": "simulate paging p.trace --colors 1,2",
    "simulate-cache": "simulate cache t.trace --hierarchy zen-3 -n 2",
    "simulate-tlb": "simulate tlb t.trace --processor zen-3",
    "simulate-sweep": "simulate sweep sweep.toml --out out.sweep --processes 2",
}
GROUPS = {
    "run",
    "map",
    "stat",
    "study",
    "report",
    "trace",
    "diagnose",
    "advise",
    "compare",
    "model",
    "predict",
    "try",
    "import",
    "doctor",
    "simulate",
}
STUDY = """
name = "s"
executions = 2
warmups = 0
baseline = "a"
[[workload]]
name = "t"
command = ["true"]
[[policy]]
name = "a"
[[policy]]
name = "b"
pages = "2M"
"""
SWEEP = (
    'traces = ["t.trace"]\nseeds = 2\n[[cache]]\nhierarchy = "zen-3"\nframes = ["kernel", "random"]\nmemory = "64M"\n'
)
LIMITS = {
    **{f"address space {m} MiB": (resource.RLIMIT_AS, m * MIB) for m in (256, 512, 1024, 2048)},
    "data 128 MiB": (resource.RLIMIT_DATA, 128 * MIB),
    # With fewer than 5 CPython does not come as far as pagelab.
    **{f"{n} descriptors": (resource.RLIMIT_NOFILE, n) for n in (5, 6, 8, 12, 30)},
    **{f"{n} processes": (resource.RLIMIT_NPROC, n) for n in (1, 4)},
}
BETWEEN = {f"address space {m} MiB" for m in (256, 1024, 2048)} | {"6 descriptors", "12 descriptors", "4 processes"}
"""Limits between others."""
ENDS = [name for name in LIMITS if name not in BETWEEN]
NOBODY = 61_000 + os.getpid() % 4_000
"""A user without a name and without other processes: those of the real nobody would be counted, too."""
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands read, made without limits."""
    here = tmp_path_factory.mktemp("limits")
    (here / "s.toml").write_text(STUDY)
    (here / "sweep.toml").write_text(SWEEP)
    (here / "f.csv").write_text("factor,time\n0,1.0\n0,1.1\n1,1.2\n1,1.3\n")
    layouts = [f"l{i},{1000 + 7 * i},{20 + i * i % 7},{10 + 3 * i},{100 + 9 * i}" for i in range(12)]
    (here / "m.csv").write_text("\n".join(["layout,R,H,M,C", *layouts]) + "\n")
    for words in (
        "model import m.csv --into m.model",
        "model import m.csv --into fitted.model",
        "model fit fitted.model --model poly1 --folds 3",
        "study run s.toml --into s.study",
        "trace capture --full -o t.trace -- true",
        "trace capture -o p.trace -- true",
    ):
        subprocess.run([sys.executable, "-m", "pagelab", *words.split()], cwd=here, check=True, capture_output=True)
    open_to_all(here)
    return here


def become_nobody() -> None:
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


@cache
def nobodys_python() -> str | None:
    """A Python of this version that user nobody can run, with everything that pagelab imports."""
    for python in (sys.executable, f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"):
        with contextlib.suppress(OSError):
            command = [python, "-c", "import pagelab.cli.commands, scipy.stats"]
            done = subprocess.run(
                command, env=ENVIRONMENT, cwd="/", preexec_fn=become_nobody, capture_output=True, check=False
            )
            if done.returncode == 0:
                return python
    return None


def limited(
    made: Path, place: Path, words: str, limit: Callable[[], None], python: str = sys.executable
) -> tuple[int, str, float]:
    """Exit code, standard error and seconds of processor time of a command; a hang fails."""
    for name in ("s.study", "t.trace", "p.trace", "f.csv", "sweep.toml"):
        (place / name).symlink_to(made / name)
    log = place / "err"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with log.open("wb") as err:
        child = subprocess.Popen(
            [python, "-m", "pagelab", *words.format(here=made).split()],
            cwd=place, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err,
            preexec_fn=limit, start_new_session=True,
        )  # fmt: skip
        try:
            status = child.wait(120)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            pytest.fail(f"{words} hangs\n{log.read_text()[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return status, log.read_text(errors="replace"), used_s


def works_or_says_why(status: int, err: str, used_s: float) -> None:
    assert used_s < PATIENCE_S
    assert "Traceback" not in err
    if status != 0:
        assert status in (1, 2, 3, 4), err
        # Libraries say something of their own besides.
        assert any(line.startswith("pagelab: ") or ": pagelab " in line for line in err.splitlines()), err


def test_every_command_group_is_in_this_sweep() -> None:
    from pagelab.cli.commands import COMMANDS as ALL

    assert {name.partition("-")[0] for name in COMMANDS} == GROUPS
    assert ALL.keys() - GROUPS == {"demo"}, "a study and its report, which are here, on longer programs"


def every_day(command: str, limit: str) -> bool:
    """Whether the pair is none of the slow tests: each command under one limit, in turns."""
    return limit in ENDS and (list(COMMANDS).index(command) + ENDS.index(limit)) % len(ENDS) == 0


@pytest.mark.parametrize(
    ("command", "limit"),
    [
        pytest.param(command, limit, marks=() if every_day(command, limit) else pytest.mark.slow)
        for command in COMMANDS
        for limit in LIMITS
    ],
)
def test_limits(command: str, limit: str, made: Path, everyones: Path) -> None:
    kind, value = LIMITS[limit]
    counted_by_user = kind == resource.RLIMIT_NPROC  # and root may have any number
    if counted_by_user and os.geteuid() != 0:
        pytest.skip("processes of a user of its own are counted; run: sudo make test")
    python = nobodys_python() if counted_by_user else sys.executable
    if python is None:
        pytest.skip("user nobody can run no Python that has pagelab (is it below /root?); run: make test elsewhere")

    def apply() -> None:
        resource.setrlimit(kind, (value, value))
        if counted_by_user:
            become_nobody()

    works_or_says_why(*limited(made, everyones, COMMANDS[command], apply, python))


def test_a_command_of_a_group_that_starts_programs_is_none_of_the_group() -> None:
    """What it starts would inherit the variables that keep libraries to one thread."""
    from pagelab.cli.limits import STARTS_NO_PROGRAM, command_of

    for name in ("run", "check", "range", "kinds"):
        assert command_of(["model", name, "g.model"]) not in STARTS_NO_PROGRAM
    assert command_of(["model", "fit", "run"]) in STARTS_NO_PROGRAM
    assert command_of(["--help"]) == ""


@pytest.mark.parametrize(("command", "expected"), [("simulate", 3), ("compare", 0)])
def test_children_at_rest_are_no_work_but_of_commands_that_start_programs(command: str, expected: int) -> None:
    """Regression: a sweep that hung in a library beside a helper process of its own was never ended."""
    program = (
        "import subprocess, sys\n"
        "from pagelab.cli import limits\n"
        "limits.PATIENCE_S = 2.0\n"
        "work = lambda: subprocess.run(['sleep', '6'], check=True)\n"
        f"limits.guarded(work, {command!r}, ['this is limited'])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == expected, done.stderr
    assert ("nothing has happened for 2 s; this is limited" in done.stderr) == (expected == 3), done.stderr
