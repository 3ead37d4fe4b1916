"""Local processes: what is killed is done again, what kills is named, and nobody is left behind."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import working
from harness.processes import arguments_of, children_of, is_gone
from pagelab.distribute.model import Lost
from pagelab.distribute.processes import LocalProcesses

HERE = Path(__file__).parent.parent


def gone(pid: int) -> bool:
    """Waits for the process to end."""
    for _ in range(1000):
        if is_gone(pid):
            return True
        time.sleep(0.02)
    return False


def test_every_job_has_its_result() -> None:
    assert sorted(LocalProcesses(2).execute(working.double, range(30))) == [(n, 2 * n) for n in range(30)]
    assert list(LocalProcesses(2).execute(working.double, [])) == []


def test_processes_are_used_again() -> None:
    found = {pid for _, pid in LocalProcesses(2).execute(working.own_process, range(20))}
    assert 1 <= len(found) <= 2
    assert os.getpid() not in found
    assert all(map(gone, found))


def test_a_job_whose_process_was_killed_is_done_again(tmp_path: Path) -> None:
    jobs = [(n, str(tmp_path / str(n)) if n in (0, 3, 7) else None) for n in range(10)]
    found = dict(LocalProcesses(2, attempts=2).execute(working.die_where_marked, jobs))
    assert found == {job: job[0] for job in jobs}
    assert len(list(tmp_path.iterdir())) == 3


def test_a_job_that_kills_whatever_has_it_is_lost_by_name_and_alone() -> None:
    jobs = [(0, None), (1, "always"), (2, None), (3, None)]
    found = dict(LocalProcesses(2, attempts=3).execute(working.die_where_marked, jobs))
    lost = found.pop((1, "always"))
    assert found == {(n, None): n for n in (0, 2, 3)}
    assert isinstance(lost, Lost)
    assert lost.message.startswith("each of 3 processes that had it ended, the last: signal 9 (SIGKILL")


def test_exceptions_come_back() -> None:
    assert list(LocalProcesses(1).execute(working.refuse, [7])) == [(7, Lost("ValueError: no 7"))]


def test_jobs_are_drawn_as_processes_come_free() -> None:
    drawn = []

    def jobs() -> Iterator[int]:
        for number in itertools.count():
            drawn.append(number)
            yield number

    outcomes = LocalProcesses(2).execute(working.double, jobs())
    taken = list(itertools.islice(outcomes, 10))
    outcomes.close()
    assert len(taken) == 10
    assert len(drawn) <= 12


def test_giving_up_ends_processes_in_the_middle_of_a_job() -> None:
    outcomes = LocalProcesses(2).execute(working.sleep, [0.0, 600.0, 600.0])
    _, first = next(outcomes)
    children = children_of(os.getpid())
    assert int(first) in children
    outcomes.close()
    assert gone(int(first))
    # multiprocessing's resource tracker stays.
    assert not [pid for pid in children if any(b"spawn_main" in word for word in arguments_of(pid))]


SCRIPT = """
import os, sys
from harness import working
from pagelab.distribute.processes import LocalProcesses

def main():
    for _, pid in LocalProcesses(2).execute(working.sleep, [0.0, 0.0, 600.0, 600.0]):
        print(pid, flush=True)
"""


def script(tmp_path: Path, end: str) -> subprocess.Popen[str]:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT + end)
    path_of_tests = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path_of_tests}
    return subprocess.Popen(
        [sys.executable, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def test_processes_do_not_outlive_who_started_them(tmp_path: Path) -> None:
    with script(tmp_path, "if __name__ == '__main__':\n    main()\n") as running:
        assert running.stdout is not None
        pids = [int(running.stdout.readline()) for _ in range(2)]
        running.send_signal(signal.SIGKILL)
    assert all(map(gone, pids))


def test_a_script_that_workers_cannot_import_is_told_how(tmp_path: Path) -> None:
    with script(tmp_path, "main()\n") as running:
        _, stderr = running.communicate(timeout=60)
    assert running.returncode != 0
    assert 'if __name__ == "__main__":' in stderr.splitlines()[-1]


@pytest.mark.parametrize(("processes", "attempts"), [(0, 1), (1, 0)])
def test_nothing_is_done_by_nobody(processes: int, attempts: int) -> None:
    with pytest.raises(ValueError, match="at least one"):
        LocalProcesses(processes, attempts=attempts)
