"""With ``--json``, standard output is one JSON document and nothing else, whatever the program itself prints.

The commands are those of the tree: one that has the option and no line here fails the first test.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from harness.frames import _missing as frames_missing
from pagelab import paths, trace
from pagelab.cli.manpage import commands

WORDS = "what the program prints"
PRINTS = ["sh", "-c", f"echo {WORDS}"]
LINE = f"sh -c 'echo {WORDS}'"
TOUCHES = ["sh", "-c", f"echo {WORDS}; exec {paths.workload()} gups --bytes 48M --updates 300000"]
NEEDS_EMULATOR = {"trace capture", "model layouts", "model run", "model check", "model range"}
# {…} is filled in from the fixtures below.
CASES: dict[str, list[str]] = {
    "run": ["--json", "--", *PRINTS],
    "map": ["--json", "--", *PRINTS],
    "stat": ["--json", "{pid}"],
    "try": ["--json", "--env", "A=1", "--env", "A=2", "--minutes", "0.08", "--", *PRINTS],
    "compare": ["--json", "-n", "6", LINE, LINE],
    "diagnose": ["--json", "--minutes", "9", "--", *PRINTS],
    "advise": ["--json", "--minutes", "0.3", "--", *TOUCHES],
    "study status": ["--json", "s.study"],
    "doctor": ["--json", "--no-noise"],
    "predict": ["--json", "w.model", "--h", "22", "--m", "20", "--c", "130"],
    "trace capture": ["--json", "-o", "captured.trace", "--", *PRINTS],
    "trace info": ["--json", "--thorough", "t.trace"],
    "trace convert": ["--json", "--page", "2M", "t.trace", "converted.trace"],
    "trace concat": ["--json", "-o", "both.trace", "t.trace", "t.trace"],
    "trace interleave": ["--json", "--quantum", "10", "-o", "turns.trace", "t.trace", "t.trace"],
    "trace reduce": ["--json", "--memory", "64K", "t.trace", "reduced.trace"],
    "simulate paging": ["--json", "p.trace"],
    "simulate cache": ["--json", "t.trace", "--hierarchy", "zen-3", "-n", "2"],
    "simulate tlb": ["--json", "t.trace", "--processor", "zen-3"],
    "simulate sweep": ["--json", "sweep.toml", "--out", "swept", "--processes", "0"],
    "model import": ["--json", "w.csv", "--into", "again.model"],
    "model fit": ["--json", "w.model", "--folds", "3", "--model", "poly1"],
    "model report": ["--json", "w.model"],
    "model sensitivity": ["--json", "w.model", "--folds", "3", "--model", "poly1"],
    "model layouts": ["--json", "pools.trace", "--n", "9"],
    "model run": [
        "--json", "--dry-run", "--minutes", "3", "--layouts", "8", "--select", "random", "--counts", "simulated",
        "--processor", "zen-3", "--into", "g.model", "--", *TOUCHES,
    ],
    "model check": ["--json", "c.model", "--pages", "anon=0-16M:2M", "--minutes", "0.1"],
    "model range": ["--json", "g.model", "--minutes", "0.5"],
    "model kinds": ["--json", "--minutes", "2", "--into", "w.kinds", "--", *TOUCHES],
}  # fmt: skip


FEW = (
    "import sys\nfrom pagelab.diagnose import allocate\nfrom pagelab.model_run import kinds\n"
    "allocate.MOST_BLOCKS, allocate.MOST_CONFIRMED, kinds.MOST_BLOCKS = 8, 15, 8\n"
    "from pagelab.cli import main\nsys.argv = ['pagelab', *sys.argv[1:]]\nmain()\n"
)
"""The command, with as few executions as a diagnosis, or a design of kinds, can have: it would take minutes."""


def pagelab(cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    how = ["-c", FEW] if words[0] == "diagnose" or words[:2] == ("model", "kinds") else ["-m", "pagelab"]
    command = [sys.executable, *how, *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False, timeout=280)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a small input of every kind."""
    directory = tmp_path_factory.mktemp("json")
    pages = [np.arange(0x10000, 0x200000, 4096, dtype=np.uint64)]
    trace.write(directory / "t.trace", pages)
    trace.write(directory / "p.trace", pages)
    (directory / "sweep.toml").write_text('traces = ["p.trace"]\n[[paging]]\npolicies = ["lru"]\nmemory = "64K"\n')
    study = 'name = "s"\nexecutions = 2\nwarmups = 0\n[[workload]]\nname = "w"\ncommand = ["true"]\n'
    (directory / "s.toml").write_text(study + '[[policy]]\nname = "a"\n[[policy]]\nname = "b"\naslr = "off"\n')
    random = np.random.default_rng(1)
    with (directory / "w.csv").open("w", newline="") as out:
        table = csv.writer(out)
        table.writerow(["layout", "role", "walk_cycles", "stlb_hits", "stlb_misses", "cpu-cycles"])
        for i in range(24):
            name = {0: "layout4kb", 23: "layout2mb"}.get(i, f"layout{i}")
            c, role = 300.0 - 10 * i, "test" if i % 4 == 2 else "train"
            for _ in range(3):
                table.writerow([name, role, c, c / 5, c / 7, (1000 + c) * (1 + 0.003 * random.normal())])
    for words in (
        ["study", "run", "s.toml"],
        ["model", "import", "w.csv"],
        ["model", "fit", "w.model", "--folds", "3"],
    ):
        done = pagelab(directory, *words)
        assert done.returncode == 0, done.stderr
    return directory


@contextmanager
def governed(cwd: Path) -> Iterator[int]:
    """The process of a program whose frames are placed."""
    sleeps = [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(600)"]
    command = [sys.executable, "-m", "pagelab", "run", "-q", "--frames", "page-coloring", "--", *sleeps]
    launcher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=cwd)
    assert launcher.stdout is not None
    pid = int(launcher.stdout.readline())
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        launcher.wait()
        launcher.stdout.close()


def alone(done: subprocess.CompletedProcess[str]) -> object:
    """What standard output is, as one document."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_no_command_is_forgotten() -> None:
    with_json = {
        command.path.removeprefix("pagelab ")
        for command in commands().walk()
        if any("--json" in option.names for option in command.options)
    }
    assert with_json == set(CASES)


def marks_of(command: str) -> tuple[pytest.MarkDecorator, ...]:
    """What the command, with the words of :data:`CASES`, needs of the machine, and whether it takes long."""
    needs = (pytest.mark.needs_page_sizes,) if command.startswith("model") or command == "advise" else ()
    campaigns = ("model check", "model range", "diagnose")
    return (*needs, pytest.mark.slow) if command in campaigns else needs


@pytest.mark.by_turns(4)
@pytest.mark.parametrize("command", [pytest.param(name, marks=marks_of(name)) for name in CASES])
def test_standard_output_is_one_document(command: str, here: Path) -> None:
    words = [*command.split(), *CASES[command]]
    if command in NEEDS_EMULATOR and shutil.which("qemu-x86_64") is None:
        pytest.skip("no emulator: install qemu-user (apt install qemu-user)")
    if command == "stat":
        if frames_missing() is not None:
            pytest.skip(str(frames_missing()))
        with governed(here) as pid:
            assert alone(pagelab(here, *(word.format(pid=pid) for word in words)))
        return
    if command == "model layouts":
        program = [str(paths.workload()), "gups", "--bytes", "8M", "--updates", "1000"]
        captured = pagelab(here, "trace", "--pools", "-o", "pools.trace", "--", *program)
        assert captured.returncode == 0, captured.stderr
    if command == "model check":
        program = ["--minutes", "0.7", "--into", "c.model", "--", *TOUCHES]
        made = pagelab(here, "model", "run", "--layouts", "8", "--select", "random", "--counts", "simulated", *program)
        assert made.returncode == 0, made.stderr
    if command == "model range" and not (here / "g.model").exists():
        assert pagelab(here, "model", "run", *CASES["model run"]).returncode == 0
    done = pagelab(here, *words)
    assert alone(done)
    if command in ("run", "map", "trace capture"):
        assert f"{WORDS}\n" in done.stderr
