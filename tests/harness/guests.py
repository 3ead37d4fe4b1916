"""Compiles the guest programs of ``tests/guests``, and knows their arguments."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from .packages import need

SOURCES = Path(__file__).parent.parent / "guests"
FLAGS = ["-std=gnu17", "-O1", "-g", "-pthread", "-Wall", "-Wextra", "-Werror"]


@dataclass(frozen=True)
class Guest:
    """One way to call one guest program. ``{plugin}`` and ``{directory}`` in the arguments are filled in."""

    program: str
    arguments: tuple[str, ...] = ()
    name: str = ""
    more: dict[str, str] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return self.name or self.program


class Workshop:
    """Builds programs into a directory, each once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def build(self, name: str, compiler: str = "gcc", flags: tuple[str, ...] = (), suffix: str = "") -> Path:
        """``tests/guests/<name>.c`` as an executable (or shared object, with the flags for it)."""
        return self.compile(SOURCES / f"{name}.c", f"{name}{suffix}", compiler, flags)

    def compile(self, source: Path, output: str, compiler: str = "gcc", flags: tuple[str, ...] = ()) -> Path:
        path = self.directory / output
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            self._run([need(compiler), *FLAGS, *flags, str(source), "-o", str(path), "-ldl"])
        return path

    def plugin(self) -> Path:
        return self.build("plugin", flags=("-shared", "-fPIC"), suffix=".so")

    def go(self) -> Path:
        path = self.directory / "go_program"
        if not path.exists():
            self._run([need("go"), "build", "-o", str(path), str(SOURCES / "go_program.go")])
        return path

    def go_with_cgo(self, name: str, beside: list[Path]) -> Path:
        """The Go package ``tests/guests/<name>``, with C files beside it that cgo compiles."""
        package = self.directory / name
        if not package.exists():
            shutil.copytree(SOURCES / name, package)
            for file in beside:
                shutil.copy(file, package)
            self._run([need("go"), "build", "-C", str(package), "-ldflags", "-extldflags -static", "-o", name, "."])
        return package / name

    def argv(self, guest: Guest, scratch: Path) -> list[str]:
        """The command line of a guest; ``scratch`` is an empty directory of the test's own."""
        program = str(self.build(guest.program))
        plugin = str(self.plugin()) if "plugin" in guest.program else ""
        fill = {"directory": str(scratch), "plugin": plugin, "program": program}
        return [program, *(argument.format(**fill) for argument in guest.arguments)]

    @staticmethod
    def _run(command: list[str]) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"


_SPECIAL = {
    "beyond_mappings": [],  # its argument depends on the policy: test_guests_placement
    "call_costs": [],  # test_cost
    "cold_file": [],  # test_guests_fetch
    "die": [],  # test_guests_process
    "dlopen_plugin": [Guest("dlopen_plugin", ("{plugin}",))],
    "drop_privileges": [Guest("drop_privileges", ("{directory}",))],
    "fork_frees_locks": [
        Guest("fork_frees_locks", ("stream",), "fork_frees_locks-stream"),
        Guest("fork_frees_locks", ("arena",), "fork_frees_locks-arena"),
    ],
    "fork_on_coroutine": [
        Guest("fork_on_coroutine"),
        Guest("fork_on_coroutine", ("threads",), "fork_on_coroutine-threads"),
    ],
    "known_shape": [],  # test_guests_placement
    "plugin": [],
    "process_cost": [],  # test_guests_process
    "resources": [],  # test_resources, and the next two
    "short_pointers": [],  # test_guests_placement
    "signal_small_stack": [],
    "stack_depth": [],
    "sanitized": [],  # test_guests_sanitizers
    "sandbox_calls": [
        Guest("sandbox_calls", ("memory",), "sandbox-memory"),
        Guest("sandbox_calls", ("memory", "by-syscall"), "sandbox-memory-by-syscall"),
        Guest("sandbox_calls", ("memory", "by-syscall-of-prctl"), "sandbox-memory-by-syscall-of-prctl"),
        Guest("sandbox_calls", ("break",), "sandbox-break"),
        Guest("sandbox_calls", ("probe",), "sandbox-probe"),
        Guest("sandbox_calls", ("exec", "{program}"), "sandbox-exec"),
        Guest("sandbox_calls", ("exec-raw", "{program}"), "sandbox-exec-raw"),
    ],
    "seccomp": [Guest("seccomp", ("errno",), "seccomp-errno"), Guest("seccomp", ("kill",), "seccomp-kill")],
    "static_program": [],  # test_guests_refused
    "thp_disabled": [],  # test_guests_placement
    "torture": [Guest("torture", ("1", "800", "1")), Guest("torture", ("2", "300", "4"), "torture-threads")],
}


def every_guest() -> list[Guest]:
    """All guests that print "ok" and exit 0 under every policy."""
    programs = sorted(path.stem for path in SOURCES.glob("*.c"))
    return [guest for program in programs for guest in _SPECIAL.get(program, [Guest(program)])]
