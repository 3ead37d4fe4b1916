"""A machine that lacks what the tests need: it is installed, or told in one line, before anything is built."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness import packages, processes
from harness.launching import open_to_all

ROOT = packages.ROOT
SCRIPT = ROOT / "tests" / "harness" / "packages.py"
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="packages are installed by root; run: sudo make test")
ASKS = {"need", "shutil.which"}


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A directory as PATH: Rust of a good version, a C compiler, and nothing that the tests need."""
    path = tmp_path / "bin"
    path.mkdir()
    for program in ("cargo", "rustc"):
        write(path / program, f'echo "{program} 1.89.0 (0123 2025-08-04)"')
    write(path / "cc", "exit 0")
    for program in ("bash", "sh", "find", "sed", "rm", "uname", "env", "setpriv"):
        (path / program).symlink_to(Path(packages.need("bash")).parent / program)
    open_to_all(tmp_path)
    return path


def write(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def told(bare: Path, purpose: str, *prefix: str) -> subprocess.CompletedProcess[str]:
    # A copy, which another user can read wherever this checkout lies.
    copy = bare.parent / "copy"
    for name in ("Cargo.toml", "tests/packages.txt", "tests/harness/packages.py"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    open_to_all(bare.parent)
    command = [*prefix, sys.executable, "-I", str(copy / "tests/harness/packages.py"), purpose]
    return subprocess.run(command, env={"PATH": str(bare)}, capture_output=True, text=True, check=False, timeout=60)


def as_nobody() -> list[str]:
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []


def test_every_program_that_tests_ask_for_has_a_package() -> None:
    listed = {program for package in packages.packages() for program in package.programs}
    asked: dict[str, str] = {}
    for path in [*ROOT.glob("tests/**/*.py"), *ROOT.glob("bench/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ASKS and node.args:
                program = node.args[0]
                if isinstance(program, ast.Constant) and isinstance(program.value, str):
                    asked[program.value] = path.name
    assert {"hyperfine", "valgrind", "gdb"} <= asked.keys()
    assert asked.keys() - listed <= {"cargo", "python3", "apt-get", "sort", "true"}, "add them to tests/packages.txt"


def test_every_row_says_what_needs_the_package() -> None:
    rows = packages.packages()
    assert all(package.purpose in ("setup", "tests") and package.looked_for and package.reason for package in rows)
    assert packages.providing("hyperfine") == "hyperfine"
    with pytest.raises(AssertionError, match=r"in no row of tests/packages\.txt"):
        packages.providing("no-such-program")


def test_without_root_one_line_names_every_missing_package(bare: Path) -> None:
    if os.geteuid() == 0 and subprocess.run([*as_nobody(), sys.executable, "-c", ""], check=False).returncode != 0:
        pytest.skip(f"nobody cannot run {sys.executable}; use a Python outside /root")
    done = told(bare, "tests", *as_nobody())
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    expected = [
        p.name
        for p in packages.packages()
        if any(
            shutil.which(word, path=str(bare)) is None and packages.find(word) == f"/usr/bin/{word}"
            for word in p.programs
        )
    ]
    assert {"hyperfine", "strace", "gdb"} <= set(expected) <= set(line.split("apt-get install ")[1].split())
    assert told(bare, "setup", *as_nobody()).returncode == 0, "pagelab itself needs none of them"


@AS_ROOT
def test_root_installs_what_is_missing_without_being_asked(bare: Path) -> None:
    log = bare.parent / "log"
    # An apt-get that makes the programs of each package it is told to install; exit 9: it could ask something.
    write(
        bare / "apt-get",
        f'echo "$DEBIAN_FRONTEND $*" >> {log}; read -r answer && exit 9\n'
        f'[ "$4" != install ] || exec {sys.executable} -I {bare}/make-programs "$@"',
    )
    (bare / "make-programs").write_text(
        f"import pathlib, sys\nsys.path.insert(0, {str(SCRIPT.parent)!r})\nimport packages\n"
        "for package in packages.packages():\n"
        "    for program in package.programs if package.name in sys.argv else []:\n"
        f"        path = pathlib.Path({str(bare)!r}, program)\n"
        "        path.exists() or path.write_text('')\n"
        "        path.chmod(0o755)\n"
    )
    done = told(bare, "tests")
    assert done.returncode == 0, done.stderr
    update, install = log.read_text().splitlines()
    assert update.startswith("noninteractive ")
    assert update.endswith(" update")
    assert " install -y " in install
    assert " hyperfine " in install
    before = log.read_text()
    assert told(bare, "tests").returncode == 0
    assert log.read_text() == before, "what is there is not installed again"


@AS_ROOT
def test_a_failed_installation_is_an_error_with_the_packages(bare: Path) -> None:
    write(bare / "apt-get", "echo 'E: no network' >&2; exit 100")
    done = told(bare, "tests")
    assert done.returncode == 1
    assert "apt-get update failed: E: no network" in done.stderr
    assert "packages are missing; run: sudo apt-get install" in done.stderr


@pytest.mark.parametrize(
    ("rustc", "message"),
    [
        ('echo "rustc 1.63.0 (4b91a6ea7 2022-08-08)"', "Rust 1.89 or newer is needed, and here is rustc 1.63.0"),
        ("echo 'error: no default toolchain' >&2; exit 1", "`rustc --version` fails: error: no default toolchain"),
        (None, "Rust 1.89 or newer is needed, and rustc is missing"),
    ],
)
@pytest.mark.parametrize("goal", ["demo", "test", "lint"])
def test_an_old_rust_is_told_before_anything_is_built(bare: Path, rustc: str | None, message: str, goal: str) -> None:
    checkout = bare.parent / "checkout"
    checkout.mkdir()
    for name in ("Makefile", "Cargo.toml", "Cargo.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, checkout / name)
    (checkout / "crates").mkdir()
    (checkout / "src").mkdir()
    (checkout / "tests" / "harness").mkdir(parents=True)
    for name in ("tests/packages.txt", "tests/harness/packages.py"):
        shutil.copy(ROOT / name, checkout / name)
    (bare / "rustc").unlink()
    if rustc is not None:
        write(bare / "rustc", rustc)
    log = bare.parent / "built"
    write(bare / "cargo", f'[ "$1" = --version ] && echo "cargo 1.89.0" && exit; echo "$*" >> {log}')
    command = [packages.need("make"), "-C", str(checkout), goal, f"PYTHON={sys.executable}"]
    done = subprocess.run(command, env={"PATH": str(bare)}, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert not log.exists()
    assert not (checkout / ".venv").exists()


def test_a_module_that_is_gone_is_installed_and_packed_no_more(tmp_path: Path) -> None:
    """Regression: what a former build had left was packed again, and a deleted source was no reason to install."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in (
        "Cargo.toml",
        "Cargo.lock",
        "pyproject.toml",
        "src/pagelab/kept.py",
        "src/pagelab/gone.py",
        "crates/x.rs",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    stamp = tmp_path / ".venv" / ".pagelab-installed"
    (stamp.parent / "bin").mkdir(parents=True)
    (stamp.parent / "bin" / "python").touch()
    stamp.touch()
    after = stamp.stat().st_mtime + 1

    def done(goal: str) -> str:
        command = [packages.need("make"), "-C", str(tmp_path), "--dry-run", goal]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "pip install" not in done("setup")
    (tmp_path / "src/pagelab/gone.py").unlink()
    os.utime(tmp_path / "src/pagelab", (after, after))
    assert "pip install" in done("setup")
    wheel = done("wheel")
    assert 0 < wheel.find("rm -rf target/wheel build/lib*") < wheel.find("pip wheel")


@pytest.mark.parametrize("goal", ["test", "test-machine", "test-computing", "test-slow", "bench", "power"])
def test_what_tests_need_is_installed_whichever_of_them_are_run(goal: str) -> None:
    command = [packages.need("make"), "-C", str(ROOT), "--dry-run", goal]
    assert "packages.py tests" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_process_that_ends_while_it_is_looked_at_is_gone() -> None:
    """Its files in /proc give ESRCH once it was collected, ENOENT if they were opened too late."""
    for _ in range(300):
        child = subprocess.Popen(["true"])
        seen = [processes.is_gone(child.pid) for _ in range(5)]
        child.wait()
        assert processes.is_gone(child.pid)
        assert sorted(seen) == seen, "gone once, gone for ever"


@pytest.mark.parametrize("error", [FileNotFoundError, ProcessLookupError])
def test_both_errors_of_a_process_that_went_mean_gone(error: type[OSError], monkeypatch: pytest.MonkeyPatch) -> None:
    def read(path: Path) -> str:
        raise error(path)

    monkeypatch.setattr(Path, "read_text", read)
    monkeypatch.setattr(Path, "read_bytes", read)
    assert processes.is_gone(1)
    assert processes.parent_of(1) is None
    assert processes.children_of(1) == []
    assert processes.arguments_of(1) == []
