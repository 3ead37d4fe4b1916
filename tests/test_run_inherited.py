"""What ``pagelab run`` is started with: its caller's descriptors, signals, limits and temporary directory."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.file_systems import small_file_system
from pagelab import environment, launcher, machine
from pagelab.errors import BadInputError

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root; run: sudo make test")
RUN = [sys.executable, "-m", "pagelab", "run", "-q"]


def started(
    *arguments: str, first: Callable[[], object] | None = None, **how: object
) -> subprocess.CompletedProcess[str]:
    """A run by a caller that does ``first`` just before it executes pagelab."""
    how = {"capture_output": True, "timeout": 60, **how}
    return subprocess.run([*RUN, *arguments], text=True, check=False, preexec_fn=first, **how)


def ignoring(*signals: int) -> Callable[[], object]:
    def ignore() -> None:
        for number in signals:
            signal.signal(number, signal.SIG_IGN)

    return ignore


# --- descriptors ----------------------------------------------------------------------------------------------


def test_the_program_has_the_descriptors_of_its_caller(tmp_path: Path) -> None:
    """Regression: a program got none of its caller's descriptors beside the standard streams, and always lost 3."""
    (tmp_path / "five").write_text("five\n")
    script = f'{" ".join(RUN)} -- sh -c "cat <&3; cat <&5" 3<{tmp_path}/five 5<{tmp_path}/five; '
    script += f"{' '.join(RUN)} -- cat <(echo substituted)"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "five\nfive\nsubstituted\n"), done.stderr


def test_measurements_have_the_next_free_descriptor() -> None:
    """Regression: the descriptor for measurements was 3, also if the caller had given the program that one."""
    reading, writing = os.pipe()
    if reading != 3:
        os.dup2(reading, 3)
    report = 'echo "op 7 ms" >&$PAGELAB_MEASURE_FD; echo $PAGELAB_MEASURE_FD'
    done = subprocess.run(
        [*RUN, "--json", "--stdout", "/dev/stderr", "--", "sh", "-c", report],
        capture_output=True, text=True, check=False, timeout=60, pass_fds=(3,),
    )  # fmt: skip
    os.close(writing)
    record = json.loads(done.stdout)
    assert done.stderr.strip() == "4", done
    assert [one["value"] for one in record["measurements"]] == [7.0]


def test_the_number_for_measurements_is_the_first_that_is_free() -> None:
    assert [launcher.measure_fd(kept) for kept in ([], [4], [3], [3, 4, 9])] == [3, 3, 4, 5]


def test_a_caller_with_many_descriptors_runs_without_measurements() -> None:
    """Regression: the next number was above those that the launcher takes, and the run was refused."""
    assert launcher.measure_fd(range(3, 240)) is None
    many = "import os, sys; [os.dup2(0, number) for number in range(3, 263)]; os.execv(sys.argv[1], sys.argv[1:])"
    command = [*(word for word in RUN if word != "-q"), "--", "sh", "-c", "echo ${PAGELAB_MEASURE_FD-none}"]
    wrapped = [sys.executable, "-c", many, *command]
    env = {name: value for name, value in os.environ.items() if name != "PAGELAB_MEASURE_FD"}
    done = subprocess.run(wrapped, capture_output=True, text=True, check=False, timeout=60, env=env)
    assert (done.returncode, done.stdout) == (0, "none\n"), done
    assert "none is left for its measurements" in done.stderr


OPEN = "import os; print(sorted(int(n) for n in os.listdir('/proc/self/fd') if os.path.lexists(f'/proc/self/fd/{n}')))"


HOLDING = """
import sys
from pagelab import launcher, machine
held = open(sys.argv[1], "w")
launcher.HELD.add(held.fileno())
launcher.launch({"argv": sys.argv[2:], "preload": "never"}, machine.describe())
"""


def test_no_descriptor_of_pagelabs_own_reaches_the_program(tmp_path: Path) -> None:
    """Regression: a program inherited the lock that the launcher holds for a worker of a cluster, and could release it.
    Everything that pagelab opens is closed when the program is executed, with counters and captured output too."""
    for more in ([], ["--measure-regex", r"(?P<value>\d+)"]):
        done = started("--no-preload", "-e", "faults", *more, "--", sys.executable, "-c", OPEN)
        assert done.stdout == "[0, 1, 2, 3]\n", done
    command = [sys.executable, "-c", HOLDING, str(tmp_path / "held"), sys.executable, "-c", OPEN]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "[0, 1, 2]\n", done


@AS_ROOT
def test_a_program_of_another_user_has_no_descriptor_of_roots(tmp_path: Path) -> None:
    """As under sudo(8): the standard streams, and the one for measurements."""
    secret = tmp_path / "secret"
    secret.write_text("root's\n")
    with secret.open() as file:
        arguments = ["--user", "nobody", "--", "/usr/bin/python3", "-c", OPEN]
        done = started(*arguments, pass_fds=(file.fileno(),), cwd="/")
    assert (done.returncode, done.stdout) == (0, "[0, 1, 2, 3]\n"), done


@AS_ROOT
def test_the_working_directory_is_kept_where_its_path_leads_nowhere(tmp_path: Path) -> None:
    """Regression: the program entered it by its path, also without --cwd."""
    closed = tmp_path / "closed"
    (closed / "here").mkdir(parents=True)
    closed.chmod(0o700)
    os.chown(closed, 65534, 65534)
    command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *RUN, "--no-preload", "--", "/bin/pwd"]
    how = {"capture_output": True, "text": True, "timeout": 60}
    done = subprocess.run(command, cwd=closed / "here", check=False, **how)
    assert (done.returncode, done.stdout) == (0, f"{closed}/here\n"), done


# --- signals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT])
def test_a_signal_that_the_caller_ignores_does_not_end_the_run(number: signal.Signals, tmp_path: Path) -> None:
    """Regression: a run under nohup, or in the background of a shell without job control, was ended by what those
    ignore."""
    begun = tmp_path / "begun"
    command = [*RUN, "--", "sh", "-c", f"touch {begun}; sleep 1.5; echo done"]
    run = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=ignoring(number),
    )
    deadline = time.monotonic() + 30
    while not begun.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(run.pid, number)
    assert run.communicate(timeout=60)[0] == "done\n"
    assert run.returncode == 0


def test_a_caller_that_ignores_the_end_of_children_does_not_make_the_run_wait_for_ever() -> None:
    """Regression: with SIGCHLD ignored the kernel reaped the launcher, and its guard waited for it."""
    done = started("--propagate", "--", "sh", "-c", "exit 3", first=ignoring(signal.SIGCHLD))
    assert done.returncode == 3, done


IN_A_THREAD = """
import signal, threading
from pagelab.runner import RunRequest, run
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
def one(name):
    try:
        print(run(RunRequest(argv=[name], stdout="null")).outcome.status)
    except Exception as error:
        print(type(error).__name__)
for name in ("true", "false", "/no/such"):
    thread = threading.Thread(target=one, args=(name,))
    thread.start()
    thread.join()
"""


def test_a_thread_learns_how_the_launcher_ended_although_nobody_can_wait_for_it() -> None:
    """Regression: with SIGCHLD ignored its exit code was lost outside the main thread: bad input counted as a fault of
    pagelab's own."""
    done = subprocess.run([sys.executable, "-c", IN_A_THREAD], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.split() == ["ok", "failed", "BadInputError"], done


def test_a_process_that_was_forked_meanwhile_does_not_keep_the_run_from_ending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: a process that another thread forked (multiprocessing) had copies of the pipes' ends, and the run
    ended with it."""
    forked: list[int] = []

    def forking() -> dict[str, str]:
        forked.append(os.fork())
        if not forked[-1]:
            time.sleep(30)
            os._exit(0)
        return environment.inherited()

    monkeypatch.setattr(launcher, "environment", SimpleNamespace(inherited=forking))
    try:
        record = launcher.launch({"argv": ["true"], "preload": "never", "stdout": "null"}, machine.describe())
        assert json.loads(record)["outcome"]["status"] == "ok"
        with pytest.raises(BadInputError):
            launcher.launch({"argv": ["/no/such"], "preload": "never"}, machine.describe())
        assert [os.waitpid(pid, os.WNOHANG) for pid in forked] == [(0, 0), (0, 0)], "the run waited for them"
    finally:
        for pid in forked:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_the_program_ignores_what_its_caller_ignores() -> None:
    """Regression: SIGTTOU was reset. (Python and Rust reset SIGPIPE and SIGXFSZ before pagelab can read them.)"""
    given = (signal.SIGHUP, signal.SIGINT, signal.SIGCHLD, signal.SIGTTOU, signal.SIGUSR1)
    show = "import signal; print([s.name for s in signal.Signals if signal.getsignal(s) is signal.SIG_IGN])"
    done = started("--no-preload", "--", sys.executable, "-c", show, first=ignoring(*given))
    own = {"SIGPIPE", "SIGXFSZ"}  # the program is Python too
    # A background job's SIGQUIT.
    before = {one.name for one in signal.Signals if signal.getsignal(one) is signal.SIG_IGN}
    expected = {one.name for one in given} | before
    assert set(json.loads(done.stdout.replace("'", '"'))) - own == expected - own, done


def test_the_program_has_the_signal_mask_of_its_caller() -> None:
    """Regression: the program was started with an empty mask, whatever its caller had blocked."""

    def block() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])

    done = started("--no-preload", "--", "grep", "SigBlk", "/proc/self/status", first=block)
    assert int(done.stdout.split()[1], 16) == 1 << (signal.SIGUSR2 - 1), done


# --- limits and full file systems -------------------------------------------------------------------------------


def limit_files(size: int) -> Callable[[], object]:
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_a_limit_on_file_size_does_not_end_the_launcher() -> None:
    """Regression: a record longer than `ulimit -f` ended the launcher by SIGXFSZ, and the run had no record."""
    script = "i=0; while [ $i -lt 100 ]; do /bin/true; i=$((i+1)); done; echo done"
    done = started("--json", "--stdout", "/dev/stderr", "--", "sh", "-c", script, first=limit_files(16 << 10))
    assert done.returncode == 0, done.stderr
    assert len(done.stdout) > 16 << 10
    assert json.loads(done.stdout)["outcome"]["status"] == "ok"


def test_the_program_still_gets_the_signal_of_a_limit_on_file_size(tmp_path: Path) -> None:
    """What the launcher ignores for itself is not passed on."""
    script = f"exec head -c 100000 /dev/zero > {tmp_path}/long"
    done = started("--propagate", "--no-preload", "--", "sh", "-c", script, first=limit_files(16 << 10))
    assert done.returncode == 128 + signal.SIGXFSZ, done


@AS_ROOT
def test_a_program_that_fills_the_temporary_directory_keeps_its_record(tmp_path: Path) -> None:
    """Regression: record and messages were files in $TMPDIR; if the program had filled it, both were lost."""
    with small_file_system(tmp_path / "full", "1m") as full:
        script = f"head -c 3000000 /dev/zero > {full}/fill 2> /dev/null; echo work done"
        arguments = ["--json", "--stdout", "/dev/stderr", "--", "sh", "-c", script]
        done = started(*arguments, env={**os.environ, "TMPDIR": str(full)})
    assert done.returncode == 0, done.stderr
    assert "work done" in done.stderr
    assert json.loads(done.stdout)["outcome"]["status"] == "ok"


def test_a_record_that_cannot_be_written_is_named_with_the_next_command(tmp_path: Path) -> None:
    """Regression: "cannot write the record: …" named neither the file nor a command, and counted as bad input."""
    gone = tmp_path / "gone"
    gone.mkdir()
    request = {"schema": "pagelab.request/1", "argv": ["rmdir", str(gone)], "preload": "never"}
    request["record"] = str(gone / "record.json")
    (tmp_path / "request.json").write_text(json.dumps(request))
    command = [str(launcher.paths.launcher()), str(tmp_path / "request.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 3, done
    assert f"cannot write the record to {gone}/record.json: " in done.stderr
    assert "run: df -h" in done.stderr
