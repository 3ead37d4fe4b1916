"""How processes begin and end under a policy: ways to die, inheritance, descriptors, environment, refusals."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from harness.guests import Workshop
from harness.launching import Runner
from harness.packages import need
from harness.policies import BY_NAME
from harness.processes import processes_named
from pagelab.record import WarningKind

SEVERAL = [BY_NAME[name].toml for name in ("kernel", "all-2M", "all-4K")]
FULL = BY_NAME["all-2M"].toml
NAMES = ["kernel", "all-2M", "all-4K"]


@pytest.mark.parametrize("toml", SEVERAL, ids=NAMES)
@pytest.mark.parametrize(
    ("how", "code", "output"),
    [
        ("return", 20, "bye\n"),
        ("exit", 21, "bye\n"),
        ("_exit", 22, ""),
        ("quick_exit", 24, "bye\n"),
        ("exit-while-busy", 25, "bye\n"),
        ("exit-from-thread", 23, "bye\n"),
    ],
)
def test_exit_code_and_handlers_are_the_programs_own(
    toml: str, how: str, code: int, output: str, workshop: Workshop, run_under: Runner
) -> None:
    run = run_under(toml, [str(workshop.build("die")), how])
    outcome = run.the_record.outcome
    assert (outcome.status, outcome.exit_code, outcome.signal) == ("failed", code, None), run.story()
    assert (run.stdout, run.stderr) == (output, ""), run.story()
    assert WarningKind.PROGRAM_FAILED in run.kinds(), run.story()
    assert run.launcher_exit == 1, run.story()


@pytest.mark.parametrize("toml", SEVERAL, ids=NAMES)
@pytest.mark.parametrize(
    ("how", "number"),
    [("abort", signal.SIGABRT), ("kill", signal.SIGKILL), ("term", signal.SIGTERM), ("segv", signal.SIGSEGV)],
)
def test_death_by_signal_is_reported_as_that_signal(
    toml: str, how: str, number: int, workshop: Workshop, run_under: Runner
) -> None:
    run = run_under(toml, [str(workshop.build("die")), how])
    outcome = run.the_record.outcome
    assert (outcome.status, outcome.exit_code, outcome.signal) == ("signalled", None, number), run.story()
    assert run.stdout == "", run.story()


def test_what_the_guest_did_survives_sigkill(workshop: Workshop, run_under: Runner) -> None:
    run = run_under(FULL, [str(workshop.build("die")), "kill"])
    assert run.root.guest is not None, run.story()
    assert run.root.guest.values.get("brk.governed", 0) > 0, run.story()


def test_timeout_ends_the_whole_tree(run_under: Runner) -> None:
    marker = f"86399.{os.getpid()}"  # an argument to recognise the children by
    run = run_under(FULL, ["bash", "-c", f"sleep {marker} & sleep {marker}"], timeout_s=0.7)
    assert run.the_record.outcome.status == "timed-out", run.story()
    assert WarningKind.TIMED_OUT in run.kinds(), run.story()
    assert not processes_named(marker)


@pytest.mark.parametrize("toml", SEVERAL, ids=NAMES)
def test_start_with_closed_standard_streams(toml: str, workshop: Workshop, run_under: Runner) -> None:
    guest = workshop.build("descriptors")
    run_under(toml, ["bash", "-c", f"exec {guest} closed 0<&- 1>&- 2>&-"]).succeeded()


@pytest.mark.parametrize("toml", SEVERAL, ids=NAMES)
def test_start_with_hardly_any_descriptors(toml: str, workshop: Workshop, run_under: Runner) -> None:
    guest = workshop.build("exec_chain")
    run = run_under(toml, ["bash", "-c", f"ulimit -n 4; exec {guest}"]).succeeded()
    assert run.stdout == "ok\n", run.story()


def test_cleared_environment_leaves_the_child_alone_and_says_so(workshop: Workshop, run_under: Runner) -> None:
    guest = workshop.build("fork_child")
    run = run_under(FULL, ["bash", "-c", f"env -i {guest}; exit 0"]).succeeded()
    assert run.stdout == "ok\n", run.story()


@pytest.mark.parametrize("toml", SEVERAL, ids=NAMES)
def test_exec_with_bad_pointers_fails_where_the_policy_is_not_inherited(
    toml: str, workshop: Workshop, run_under: Runner
) -> None:
    """Regression: the library took the environment apart itself, and crashed."""
    toml += "inherit = { fork = true, exec = false }\n"
    run = run_under(toml, [str(workshop.build("exec_arguments"))]).succeeded()
    assert (run.stdout, run.stderr) == ("ok\n", ""), run.story()


@pytest.mark.parametrize("toml", SEVERAL, ids=NAMES)
def test_spawned_programs_that_do_not_inherit_leave_no_memory_behind(
    toml: str, workshop: Workshop, run_under: Runner
) -> None:
    toml += "inherit = { fork = true, exec = false }\n"
    assert run_under(toml, [str(workshop.build("spawn_many"))]).succeeded().stdout == "ok\n"


def test_forks_beside_memory_calls_leave_no_tables_behind(workshop: Workshop, run_under: Runner) -> None:
    """Regression: a child whose tables another thread of the parent was changing kept the old ones mapped, 0.7 MiB."""
    command = [str(workshop.build("fork_generations")), "beside-thread"]
    assert run_under(BY_NAME["all-4K"].toml, command).succeeded().stdout == "ok\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the root; run: sudo make test")
@pytest.mark.parametrize("toml", SEVERAL, ids=NAMES)
def test_image_that_cannot_find_the_library_does_without_a_word(
    toml: str, workshop: Workshop, run_under: Runner, tmp_path: Path
) -> None:
    """Regression: after a chroot, the dynamic linker wrote about LD_PRELOAD to the standard error of every program."""
    guest, shell = workshop.build("fork_child"), need("bash")
    root = tmp_path / "root"
    told = subprocess.run(["ldd", str(guest), shell], capture_output=True, text=True, check=True).stdout
    for path in {word for line in told.splitlines() for word in line.split() if word.startswith("/")} - {f"{guest}:"}:
        copy = root / path.rstrip(":").lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path.rstrip(":"), copy)
    shutil.copy(guest, root / "guest")
    run = run_under(toml, ["chroot", str(root), shell, "-c", "/guest; /guest; exit 7"])
    assert run.the_record.outcome.exit_code == 7, run.story()
    assert (run.stdout, run.stderr) == ("ok\nok\n", ""), run.story()


def test_program_sees_the_environment_it_was_given(run_under: Runner) -> None:
    fields = {"env": {"clear": True, "set": {"ONE": "1", "TWO": "two words"}, "unset": []}}
    run = run_under(FULL, ["/usr/bin/env"], **fields).succeeded()
    seen = dict(line.split("=", 1) for line in run.stdout.splitlines())
    extra = set(seen) - {"ONE", "TWO", "LD_PRELOAD", "PAGELAB_PLAN"}
    assert seen["TWO"] == "two words", run.story()
    assert not {name for name in extra if not name.startswith("PAGELAB_")}, run.story()


def test_existing_preload_is_kept(workshop: Workshop, run_under: Runner) -> None:
    plugin = workshop.plugin()
    fields = {"env": {"clear": False, "set": {"LD_PRELOAD": str(plugin)}, "unset": []}}
    run = run_under(FULL, ["cat", "/proc/self/maps"], **fields).succeeded()
    assert str(plugin) in run.stdout, run.story()
    assert "libpagelab" in run.stdout, run.story()


@pytest.mark.parametrize("toml", SEVERAL, ids=NAMES)
@pytest.mark.parametrize(
    "tunables",
    [
        "glibc.malloc.hugetlb=1",
        "glibc.malloc.hugetlb=2",
        "glibc.malloc.arena_max=1",
        "glibc.malloc.mmap_threshold=4096:glibc.malloc.top_pad=0:glibc.malloc.trim_threshold=4096",
    ],
)
def test_mallocs_own_settings_keep_working(toml: str, tunables: str, workshop: Workshop, run_under: Runner) -> None:
    fields = {"env": {"clear": False, "set": {"GLIBC_TUNABLES": tunables}, "unset": []}}
    for guest in ("threads_malloc", "calloc_zero"):
        run = run_under(toml, [str(workshop.build(guest))], **fields).succeeded()
        assert run.stdout == "ok\n", run.story()


@pytest.mark.parametrize(
    ("inherit", "child_governed"),
    [("fork = true, exec = true", True), ("fork = false, exec = true", False)],
)
def test_fork_inherits_or_not(inherit: str, child_governed: bool, workshop: Workshop, run_under: Runner) -> None:
    run = run_under(f'pages = "2M"\ninherit = {{ {inherit} }}\n', [str(workshop.build("fork_many"))]).succeeded()
    assert run.stdout == "ok\n", run.story()
    children = [process for process in run.the_record.processes if process.pid != run.root.pid]
    assert len(children) == 20, run.story()
    assert run.root.governed, run.story()
    assert {process.governed for process in children} == {child_governed}, run.story()


@pytest.mark.parametrize(("inherit", "child_governed"), [("true", True), ("false", False)])
def test_exec_inherits_or_not(inherit: str, child_governed: bool, run_under: Runner) -> None:
    command = ["bash", "-c", "/usr/bin/env > /dev/null; cat /proc/self/maps; exit 0"]
    run = run_under(f'pages = "2M"\ninherit = {{ fork = true, exec = {inherit} }}\n', command).succeeded()
    assert ("libpagelab" in run.stdout) == child_governed, run.story()
    assert run.root.governed, run.story()


@pytest.mark.parametrize("toml", SEVERAL[1:], ids=NAMES[1:])
def test_static_program_is_refused(toml: str, workshop: Workshop, run_under: Runner) -> None:
    run = run_under(toml, [str(workshop.build("static_program", flags=("-static",)))])
    assert run.launcher_exit == 3, run.story()
    assert "static" in run.launcher_stderr.lower(), run.story()
    assert run.stdout == "", run.story()


def test_musl_program_is_refused(workshop: Workshop, run_under: Runner) -> None:
    run = run_under(FULL, [str(workshop.build("static_program", compiler="musl-gcc", suffix="-musl"))])
    assert run.launcher_exit == 3, run.story()
    assert "musl" in run.launcher_stderr, run.story()
    assert run.stdout == "", run.story()


def test_go_program_is_refused(workshop: Workshop, run_under: Runner) -> None:
    run = run_under(FULL, [str(workshop.go())])
    assert run.launcher_exit == 3, run.story()
    assert "Go" in run.launcher_stderr, run.story()
    assert run.stdout == "", run.story()


def test_static_program_runs_where_nothing_is_asked(workshop: Workshop, run_under: Runner) -> None:
    static = workshop.build("static_program", flags=("-static",))
    run = run_under(BY_NAME["kernel"].toml, [str(static)]).succeeded()
    assert run.stdout == "ok\n", run.story()


def test_static_child_runs_ungoverned_and_is_reported(workshop: Workshop, run_under: Runner) -> None:
    static = workshop.build("static_program", flags=("-static",))
    run = run_under(FULL, ["bash", "-c", f"{static}; exit 0"], events=["faults"]).succeeded()
    assert run.stdout == "ok\n", run.story()
    assert WarningKind.CHILD_UNGOVERNED in run.kinds(), run.story()


def test_setuid_program_is_refused(run_under: Runner) -> None:
    run = run_under(FULL, [need("su"), "--version"])
    assert run.launcher_exit == 3, run.story()
    assert "setuid" in run.launcher_stderr, run.story()


def test_program_under_a_debugger(workshop: Workshop, run_under: Runner) -> None:
    guest = workshop.build("threads_malloc")
    run = run_under(FULL, [need("gdb"), "-q", "-nx", "-batch", "-ex", "run", "--args", str(guest), "2", "500"])
    # The program's line may begin within one of gdb's, which writes to the same stream.
    assert any(line.endswith("ok") for line in run.succeeded().stdout.splitlines()), run.story()
    assert "exited normally" in run.stdout, run.story()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a user to change to; run: sudo make test")
def test_program_runs_as_the_user_asked_for(run_under: Runner) -> None:
    run = run_under(FULL, ["id", "-u"], user="nobody").succeeded()
    assert run.stdout.strip() != "0", run.story()
    assert str(run.the_record.settings.uid) == run.stdout.strip(), run.story()


@pytest.mark.parametrize(("what", "most"), [("fork", 1.5), ("execvp", 2.5)])
def test_what_cannot_be_measured_costs_next_to_nothing(
    what: str, most: float, workshop: Workshop, run_under: Runner
) -> None:
    """Regression: each failing execve measured 200 MiB, each forked child itself (3,600 and 3 times the native cost).

    The bounds leave room for a busy machine; the benchmark has the figures.
    """
    argv = [str(workshop.build("process_cost")), what]
    cleared = ["/usr/bin/env", "-u", "LD_PRELOAD", "-u", "PAGELAB_PLAN", *argv]
    kernel = BY_NAME["kernel"].toml
    pairs = [(int(run_under(kernel, argv).stdout), int(run_under(kernel, cleared).stdout)) for _ in range(5)]
    assert min(ours / native for ours, native in pairs) <= most, pairs
