"""Which programs can be governed: what the kernel will start, and why a program cannot take the library."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.launching import Runner
from harness.packages import need
from pagelab.record import WarningKind

HELLO_C = '#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n'
HELLO_GO = 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("hello") }\n'


def build(directory: Path, kind: str) -> Path:
    """A program that says hello, of the kind asked for."""
    program = directory / kind
    source = directory / ("hello.go" if kind == "go" else "hello.c")
    source.write_text(HELLO_GO if kind == "go" else HELLO_C)
    commands = {
        "static": ["gcc", "-static", "-o", program, source],
        "static-pie": ["gcc", "-static-pie", "-o", program, source],
        "musl": [need("musl-gcc"), "-o", program, source],
        "go": ["go", "build", "-o", program, source],
    }
    command = [str(word) for word in commands[kind]]
    if command[0] == "go" and shutil.which("go") is None:
        command[0] = "/usr/local/go/bin/go"
    environment = os.environ | {"HOME": str(directory), "GOCACHE": str(directory / "cache"), "GO111MODULE": "off"}
    subprocess.run(command, check=True, env=environment, cwd=directory)
    return program


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("targets")
    return {kind: build(directory, kind) for kind in ("static", "static-pie", "musl", "go")}


REASONS = {"static": "statically linked", "static-pie": "statically linked", "musl": "musl", "go": "Go program"}


@pytest.mark.parametrize("kind", REASONS)
def test_a_program_past_libc_runs_ungoverned_when_nothing_is_asked(
    run_under: Runner, programs: dict[str, Path], kind: str
) -> None:
    run = run_under("", [str(programs[kind])]).succeeded()
    assert run.stdout == "hello\n"
    assert run.the_record.settings.preloaded is False
    (warning,) = run.the_record.warnings
    assert warning.kind == WarningKind.GUEST_NOT_LOADED
    assert REASONS[kind] in warning.message


@pytest.mark.parametrize("kind", REASONS)
@pytest.mark.parametrize("asked", [("pages = '2M'", "auto"), ("", "always")])
def test_a_program_past_libc_is_refused_when_something_is_asked(
    run_under: Runner, programs: dict[str, Path], kind: str, asked: tuple[str, str]
) -> None:
    run = run_under(asked[0], [str(programs[kind])], preload=asked[1])
    assert (run.launcher_exit, run.record) == (3, None), run.story()
    assert REASONS[kind] in run.launcher_stderr
    assert "--no-preload" in run.launcher_stderr
    assert run.stdout == "", "it was started all the same"


def test_scripts_are_followed_to_the_program_the_kernel_starts(run_under: Runner, tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    inner.write_text(f"#!{os.path.realpath(sys.executable)} -S\nprint('ran')\n")
    outer.write_text(f"#! {inner}\nprint('outer')\n")
    for script in (inner, outer):
        script.chmod(0o755)
        run = run_under("", [str(script)]).succeeded()
        assert run.the_record.command.executable == os.path.realpath(sys.executable)
        assert run.the_record.settings.preloaded


def test_a_script_whose_interpreter_is_static_counts_as_static(
    run_under: Runner, programs: dict[str, Path], tmp_path: Path
) -> None:
    script = tmp_path / "script"
    script.write_text(f"#!{programs['static']}\n")
    script.chmod(0o755)
    assert WarningKind.GUEST_NOT_LOADED in run_under("", [str(script)]).succeeded().kinds()


def test_an_interpreter_that_is_missing_is_named(run_under: Runner, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    run = run_under("", [str(script)])
    assert (run.launcher_exit, run.record) == (2, None)
    assert "/no/such/interpreter" in run.launcher_stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="making setuid programs of another user needs root; run: sudo make test")
@pytest.mark.parametrize(("mode", "word"), [(0o4755, "setuid"), (0o2755, "setgid")])
def test_programs_that_gain_rights_are_refused(run_under: Runner, tmp_path: Path, mode: int, word: str) -> None:
    program = tmp_path / "privileged"
    shutil.copy("/usr/bin/true", program)
    program.chmod(mode)
    run = run_under("", [str(program)])
    assert (run.launcher_exit, run.record) == (3, None)
    assert word in run.launcher_stderr
    assert "cp " in run.launcher_stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="setting file capabilities needs root; run: sudo make test")
def test_programs_with_file_capabilities_are_refused(run_under: Runner, tmp_path: Path) -> None:
    program = tmp_path / "capable"
    shutil.copy("/usr/bin/true", program)
    # VFS_CAP_REVISION_2, effective; CAP_NET_BIND_SERVICE permitted.
    value = (0x02000001).to_bytes(4, "little") + (1 << 10).to_bytes(4, "little") + bytes(12)
    os.setxattr(program, "security.capability", value)
    run = run_under("", [str(program)])
    assert (run.launcher_exit, run.record) == (3, None)
    assert "file capabilities" in run.launcher_stderr


def test_a_policy_that_asks_something_contradicts_no_preload(run_under: Runner) -> None:
    run = run_under("pages = '2M'", ["true"], preload="never")
    assert (run.launcher_exit, run.record) == (2, None)
    assert "--no-preload" in run.launcher_stderr


@pytest.mark.parametrize("place", ["program", "interpreter"])
def test_a_fifo_in_place_of_a_program_is_refused_at_once(run_under: Runner, tmp_path: Path, place: str) -> None:
    """Regression: the launcher opened a FIFO that was named as the program, or by a script's first line, and waited for
    ever; neither a time-out nor a signal had any effect."""
    program = tmp_path / "program"
    fifo = program if place == "program" else tmp_path / "interpreter"
    if place == "interpreter":
        program.write_text(f"#!{fifo}\n")
        program.chmod(0o755)
    os.mkfifo(fifo, 0o755)
    run = run_under("", [str(program)], timeout_s=1.0)
    assert (run.launcher_exit, run.record) == (2, None), run.story()
    assert "it is not a regular file; run: ls -l" in run.launcher_stderr, run.story()


def test_a_fifo_that_is_to_be_flushed_is_not_waited_for(run_under: Runner, tmp_path: Path) -> None:
    """Regression: the same for a FIFO in place of a file to be flushed."""
    os.mkfifo(tmp_path / "data")
    run = run_under("", ["true"], flush={"mode": "files", "files": [str(tmp_path / "data")]}, timeout_s=5.0)
    assert (run.launcher_exit, run.record) == (2, None), run.story()
    assert "not a regular file" in run.launcher_stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="changes the user; run: sudo make test")
def test_a_program_is_looked_up_with_its_users_rights(run_under: Runner, everyones: Path, tmp_path: Path) -> None:
    """Regression: root opened whatever the script of another user named as its interpreter."""
    secret = tmp_path / "interpreter"
    shutil.copy("/bin/sh", secret)
    secret.chmod(0o700)
    script = everyones / "script"
    script.write_text(f"#!{secret}\n")
    script.chmod(0o755)
    run = run_under("", [str(script)], user="nobody")
    assert (run.launcher_exit, run.record) == (2, None), run.story()
    assert "Permission denied (EACCES)" in run.launcher_stderr, run.story()
