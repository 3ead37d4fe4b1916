"""``pagelab run`` as a user types it."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pagelab.record import Record


def pagelab(*arguments: str, **how: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pagelab", "run", *arguments]
    environment = os.environ | {"COLUMNS": "200", "NO_COLOR": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, **how)


def test_a_warm_run_does_not_stand_for_a_cold_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: ``--flush all`` without rights ran the program with warm caches, and ended with 0."""
    from pagelab.cli import run_once
    from pagelab.errors import MachineError

    monkeypatch.setattr(run_once, "_DROP_CACHES", "/no/such/file")
    with pytest.raises(MachineError, match=r"^cannot drop the page cache: .*run it as root, or .* --flush FILE$"):
        run_once.perform(run_once.Asked(argv=["true"], flush=["all"]))


def test_the_summary_leaves_the_programs_output_alone() -> None:
    done = pagelab("-e", "faults", "--", "echo", "hello")
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
    for word in ("ok", "wall", "minor faults", "faults.minor", "policy kernel"):
        assert word in done.stderr


def test_the_double_dash_may_be_left_out() -> None:
    done = pagelab("--quiet", "sh", "-c", "echo -e $0", "-x")
    assert (done.returncode, done.stderr) == (0, "")


def test_json_is_a_complete_record(tmp_path: Path) -> None:
    output = tmp_path / "record.json"
    done = pagelab("--json", "-o", str(output), "--stdout", "null", "--env", "A=b=c", "--timeout", "60", "--", "env")
    assert done.returncode == 0, done.stderr
    record = Record.model_validate_json(done.stdout)
    assert record == Record.model_validate_json(output.read_text())
    assert record.id
    assert record.machine is not None
    assert record.machine["base_page_bytes"] == 4096
    assert record.provenance is not None
    assert record.provenance["kernel"]["release"] == os.uname().release
    assert record.command.env["A"] == "b=c"
    assert record.settings.timeout_s == 60


def test_policy_flags_and_files_reach_the_record(tmp_path: Path) -> None:
    policy = tmp_path / "p.toml"
    policy.write_text('name = "mine"\npages = "4K"\n')
    record = Record.model_validate_json(
        pagelab("--json", "--policy", str(policy), "--pages", "heap=2M", "--", "true").stdout
    )
    assert record.policy.path == str(policy)
    assert '"4K"' in record.policy.toml
    assert '"2M"' in record.policy.toml
    assert {region.asked for process in record.processes for region in process.placement} >= {"4K"}


def test_a_flag_overrides_a_rule_of_the_file_wholly(tmp_path: Path) -> None:
    """Regression: the file's rule stood in the text for the launcher, which refused it there: "can never apply"."""
    policy = tmp_path / "p.toml"
    policy.write_text('name = "mine"\n[[rule]]\nmemory = "heap"\npages = "2M"\n')
    done = pagelab("--json", "--policy", str(policy), "--pages", "heap=4K", "--", "true")
    assert done.returncode == 0, done.stderr
    assert '"2M"' not in Record.model_validate_json(done.stdout).policy.toml


def test_placement_that_was_asked_and_got_is_shown() -> None:
    allocate = "x = bytearray(64 << 20); x[::4096] = b'1' * len(x[::4096])"
    done = pagelab("--pages", "2M", "--", os.path.realpath(sys.executable), "-c", allocate)
    assert done.returncode == 0, done.stderr
    assert "tiles as asked" in done.stderr
    assert "2 MiB" in done.stderr


def test_counters_that_no_machine_of_this_kind_has_are_one_quiet_line() -> None:
    done = pagelab("-e", "tlb,faults", "--stdout", "null", "--", "true")
    said = [line for line in done.stderr.splitlines() if "tlb." in line]
    if any("no hardware counters" in line for line in said):
        (line,) = said
        assert line.startswith(" i counter-unavailable: this machine shows no hardware counters")
        assert "tlb.hits, tlb.walks, tlb.walk_cycles not counted" in line
    else:
        assert len([line for line in said if line.startswith("tlb.")]) == 3, done.stderr
    assert any(line.startswith("faults.minor") for line in done.stderr.splitlines())


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--", "sh", "-c", "exit 9"], 1),
        (["--propagate", "--", "sh", "-c", "exit 9"], 9),
        (["--propagate", "--", "sh", "-c", "kill -TERM $$"], 143),
        (["--timeout", "0.2", "--", "sleep", "60"], 1),
        (["--", "no-such-program-anywhere"], 2),
        (["--pages", "3M", "--", "true"], 2),
        (["--policy", "/no/such/policy.toml", "--", "true"], 2),
        (["--cpu", "x", "--", "true"], 2),
        (["--cpu", "3-1", "--", "true"], 2),
        (["--cpu", "9999", "--", "true"], 3),
        (["--aslr", "maybe", "--", "true"], 2),
        (["--env", "NOVALUE", "--", "true"], 2),
        (["--flush", "all", "--flush", "x", "--", "true"], 2),
        (["--flush", "no-such-file-anywhere", "--", "true"], 2),
        (["-o", "/no/such/place/record.json", "--", "true"], 2),
        (["--frames", "file=bin-hopping", "--", "true"], 2),
        (["-e", "no-such-event", "--", "true"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_exit_codes(arguments: list[str], code: int) -> None:
    done = pagelab(*arguments)
    assert done.returncode == code, done.stderr
    if code in (2, 3):
        assert done.stderr.startswith("pagelab: "), done.stderr
        assert "Traceback" not in done.stderr


def test_help_has_examples() -> None:
    done = pagelab("--help")
    assert "pagelab run -- sort big.txt" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
@pytest.mark.parametrize("send", [os.kill, os.killpg])
def test_a_signal_ends_the_program_and_the_record_tells_it(
    send: Callable[[int, int], None], number: signal.Signals, tmp_path: Path
) -> None:
    """Regression: the record was lost, and of three of the signals pagelab itself died without a word."""
    pid_file, record = tmp_path / "pid", tmp_path / "record.json"
    program = ["sh", "-c", f"echo $$ > {pid_file}; exec sleep 600"]
    command = [sys.executable, "-m", "pagelab", "run", "-o", str(record), "--", *program]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # nohup's sessions ignore SIGHUP
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not (pid_file.exists() and pid_file.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    send(process.pid, number)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert told.endswith("pagelab: interrupted\n"), told
    assert not Path(f"/proc/{pid_file.read_text().strip()}").exists()
    outcome = Record.model_validate_json(record.read_text()).outcome
    assert outcome.message is not None
    assert outcome.message.startswith(f"interrupted by {number.name}")


def run_in_terminal(arguments: list[str], typed: bytes = b"") -> tuple[int, str]:
    """Runs ``pagelab run`` in the foreground of a new terminal; types when the program says READY."""
    return in_terminal([sys.executable, "-m", "pagelab", "run", *arguments], typed)


def in_terminal(command: list[str], typed: bytes = b"") -> tuple[int, str]:
    """The same for any command."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp(command[0], command)
    output = b""
    while True:
        try:
            output += os.read(terminal, 4096)
        except OSError:  # EIO: everybody has closed the terminal
            break
        if typed and b"READY" in output:
            os.write(terminal, typed)
            typed = b""
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), output.decode(errors="replace")


def test_a_program_at_a_terminal_is_in_its_foreground() -> None:
    show = "import os; print('FRONT', os.tcgetpgrp(1) == os.getpgrp())"
    code, output = run_in_terminal(["--quiet", "--", sys.executable, "-c", show])
    assert (code, "FRONT True" in output) == (0, True), output
    code, output = run_in_terminal(["--quiet", "--stdin", "null", "--", sys.executable, "-c", show])
    assert (code, "FRONT False" in output) == (0, True), output


def test_what_is_typed_reaches_the_program() -> None:
    code, output = run_in_terminal(["--quiet", "--", "sh", "-c", "echo READY; read x; echo got-$x"], b"hello\n")
    assert (code, "got-hello" in output) == (0, True), output


QUIET_RUN = f"{sys.executable} -m pagelab run --quiet --"


def test_the_keyboard_stays_with_what_asks_before_the_program() -> None:
    """The terminal is not taken away from the first program of a pipeline (ssh or sudo, which asks for a password)."""
    asks = "sh -c 'sleep 1; echo READY > /dev/tty; read x < /dev/tty; echo got-$x'"
    code, output = in_terminal(["timeout", "--foreground", "60", "sh", "-c", f"{asks} | {QUIET_RUN} cat"], b"hello\n")
    assert (code, "got-hello" in output) == (0, True), output


def test_the_keyboard_stays_with_a_pager_behind_the_program() -> None:
    """Nor from the last one."""
    pager = "sh -c 'cat; echo READY; read x < /dev/tty; echo got-$x'"
    script = f"echo data | {QUIET_RUN} sh -c 'cat; sleep 1' | {pager}"
    code, output = in_terminal(["timeout", "--foreground", "60", "sh", "-c", script], b"hello\n")
    assert (code, "data" in output, "got-hello" in output) == (0, True, True), output


def in_shell(line: str, *typed: tuple[str, bytes]) -> str:
    """What the terminal of an interactive shell shows: types a line, then bytes where each text appears, then exit."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], {**os.environ, "PS1": "PROMPT ", "TERM": "dumb"})
    output, deadline = b"", time.monotonic() + 60
    try:
        for text, keys in [("PROMPT ", line.encode() + b"\n"), *typed, ("PROMPT ", b"exit 0\n")]:
            seen = len(output)
            while text.encode() not in output[seen:]:
                assert time.monotonic() < deadline, output
                if select.select([terminal], [], [], 0.1)[0]:
                    output += os.read(terminal, 4096)
            time.sleep(0.3)  # until who is to read the keys does so
            os.write(terminal, keys)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)
    return output.decode(errors="replace")


def test_a_pager_does_not_stop_the_run() -> None:
    """Regression: its reading of the keyboard stopped the launcher, which was in the background with it: the time-out
    ended nothing."""
    pager = """sh -c 'read x; echo KE""Y; read y < /dev/tty; echo got-$y'"""
    run = f"{QUIET_RUN[:-2]} --timeout 2 -- sh -c 'echo data; sleep 600'"
    output = in_shell(f"{run} | {pager}; echo code $PIPESTATUS", ("KEY", b"hello\n"))
    assert "got-hello" in output, output
    assert "code 1" in output, output


def test_a_program_before_another_reads_the_keyboard(tmp_path: Path) -> None:
    """Also one that writes to a file."""
    program = """sh -c 'echo REA""DY >&2; read x; echo got-$x'"""
    for behind in ("| cat", f"> {tmp_path}/out; cat {tmp_path}/out"):
        assert "got-hello" in in_shell(f"{QUIET_RUN} {program} {behind}", ("READY", b"hello\n")), behind


def test_a_run_in_the_background_comes_to_the_foreground() -> None:
    """Regression: the program stayed stopped, because its group was not the job's."""
    program = """sh -c 'echo REA""DY; read x; echo got-$x'"""
    output = in_shell(f"{QUIET_RUN} {program} & sleep 2; echo B''G", ("BG", b"fg\n"), (QUIET_RUN, b"hello\n"))
    assert "got-hello" in output, output


def test_ctrl_z_in_a_pipeline_stops_program_and_pager_and_gives_the_shell_back() -> None:
    program = """sh -c 'echo REA""DY; read x; echo got-$x'"""
    output = in_shell(f"{QUIET_RUN} {program} | cat", ("READY", b"\x1a"), ("PROMPT ", b"fg\n"), ("| cat", b"hello\n"))
    assert "Stopped" in output
    assert "got-hello" in output, output


def test_a_killed_launchers_terminal_is_taken_back() -> None:
    """Regression: if the launcher was killed, the terminal stayed with the program's group, which was gone."""
    show = f"{sys.executable} -c 'import os; print(\"FRONT\", os.tcgetpgrp(1) == os.getpgrp())'"
    script = f"{QUIET_RUN} sh -c 'kill -KILL $PPID; sleep 600'; {show}"
    _, output = in_terminal(["timeout", "--foreground", "60", "sh", "-c", script])
    assert "FRONT True" in output, output


def test_ctrl_c_typed_at_a_terminal_is_an_interruption() -> None:
    code, output = run_in_terminal(["--", "sh", "-c", "echo READY; exec sleep 600"], b"\x03")
    assert code == 130, output
    assert "Traceback" not in output


def test_measurements_are_summed_up() -> None:
    script = "for i in 1 2 3; do echo op $i ms >&3; done"
    done = pagelab("--", "bash", "-c", script)
    assert "measured  times  median\nop            3    2 ms\n" in done.stderr
    found = pagelab("--json", "--measure-regex", r"t=(?P<value>\d+)", "--stdout", "null", "--", "echo", "t=5")
    assert [m["value"] for m in json.loads(found.stdout)["measurements"]] == [5.0]


def test_pagelab_killed_outright_leaves_nothing_running(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    command = [sys.executable, "-m", "pagelab", "run", "--", "sh", "-c", f"echo $$ > {pid_file}; exec sleep 600"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (pid_file.exists() and pid_file.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.wait(60)
    program = Path(f"/proc/{pid_file.read_text().strip()}")
    while program.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not program.exists()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("how", ["", "--json"])
def test_closed_standard_streams_make_no_failure(how: str, closed: str, tmp_path: Path) -> None:
    """Regression: a good run from a daemon failed in its summary, or was told as a fault of pagelab."""
    record = tmp_path / "record.json"
    command = f"{sys.executable} -m pagelab run {how} -o {record} -- true {closed}"
    nobody_gets_it = how == "--json" and " >&-" in f" {closed}"
    done = subprocess.run(command, shell=True, capture_output=True, check=False, timeout=60)
    assert done.returncode == (3 if nobody_gets_it else 0), done
    if nobody_gets_it:
        return
    assert Record.model_validate_json(record.read_text()).outcome.status == "ok"
