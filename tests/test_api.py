"""What programs say themselves about their pages: pagelab.h, with the library preloaded, linked, and absent; strategy
modules; and the example that documents both."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from harness.frames import FramesPolicy, frames_policy
from harness.guests import Workshop
from harness.launching import Run, Runner
from pagelab import paths
from pagelab.record import WarningKind

ROOT = Path(__file__).parent.parent
INCLUDE = f"-I{paths.include()}"
EXAMPLES = ROOT / "examples"

KERNEL = FramesPolicy("kernel", 'frames = "kernel"\n', root=True)
COLOURED = frames_policy("page-coloring", "page-coloring", 64)
TWO_PARTS = FramesPolicy(
    "two-parts",
    """frames = { kind = "page-coloring", colors = 64 }
[[rule]]
memory = ["anon"]
at_least = "4M"
frames = { kind = "bin-hopping", colors = 16 }
""",
    root=True,
)
GUESTS = ["hints", "remap", "exact", "errors", "many", "children", "storm", "descriptors", "both"]
GUESTS += ["fork_while_another_hints"]  # test_forks has others about forks


@pytest.fixture(autouse=True)
def possible() -> None:
    missing = KERNEL.missing()
    if missing:
        pytest.skip(missing)


def build(workshop: Workshop, name: str, *flags: str, suffix: str = "") -> Path:
    return workshop.build(f"api/{name}", flags=(INCLUDE, *flags), suffix=suffix)


def said_ok(run: Run) -> None:
    run.succeeded()
    assert (run.stdout, run.stderr) == ("ok\n", ""), run.story()


@pytest.fixture
def room(guest: str, request: pytest.FixtureRequest) -> None:
    """Frames are hunted where they were given back."""
    if guest == "exact":
        request.getfixturevalue("one_cpu")


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize("policy", [KERNEL, COLOURED], ids=str)
@pytest.mark.parametrize("guest", GUESTS)
def test_hints_are_kept_under_any_policy(
    guest: str, policy: FramesPolicy, workshop: Workshop, run_under: Runner
) -> None:
    said_ok(run_under(policy.toml, [str(build(workshop, guest))]))


def test_the_data_of_libc_may_be_away_while_faults_are_answered(workshop: Workshop, run_under: Runner) -> None:
    """The handler once copied with libc's memcpy, which looks into libc's data: it waited for itself for ever."""
    said_ok(run_under(COLOURED.toml, [str(build(workshop, "libc_data"))], timeout_s=60))


def test_the_library_copies_without_libc() -> None:
    """... and this is what sees to it."""
    symbols = subprocess.run(
        ["nm", "-D", "--undefined-only", str(paths.library())], capture_output=True, text=True, check=True
    )
    wanted = {line.split()[-1].split("@")[0] for line in symbols.stdout.splitlines()}
    assert not wanted & {"memcpy", "memmove", "memset", "memcmp", "bcmp", "strlen"}


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize("guest", GUESTS)
def test_hints_are_kept_in_a_program_that_is_linked_with_the_library(
    guest: str, workshop: Workshop, tmp_path: Path
) -> None:
    """Started without a plan. The linker looks for libpagelab.so; a wheel calls its file otherwise."""
    link = tmp_path / "libpagelab.so"
    link.symlink_to(paths.library())
    program = build(workshop, guest, "-Wl,--no-as-needed", str(link), suffix="-linked")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run([str(program)], capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


def test_a_linked_program_has_the_library_once_under_a_policy(
    workshop: Workshop, run_under: Runner, tmp_path: Path
) -> None:
    link = tmp_path / "libpagelab.so"
    link.symlink_to(paths.library())
    program = build(workshop, "hints", "-Wl,--no-as-needed", str(link), suffix="-linked-run")
    run = run_under(COLOURED.toml, [str(program)])
    said_ok(run)
    assert len(run.the_record.processes) == 1, run.story()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user's program; run: sudo make test")
@pytest.mark.parametrize("mode", [0o755, 0o4755], ids=["ordinary", "set-user-ID"])
def test_a_program_with_more_rights_than_its_caller_obeys_no_plan(
    mode: int, workshop: Workshop, everyones: Path
) -> None:
    """Else the caller would choose a directory in which a file is made with the program's rights."""
    link = everyones / "libpagelab.so"
    shutil.copy(paths.library(), link)
    link.chmod(0o755)
    program = everyones / "hints"
    shutil.copy(
        build(workshop, "absent", "-Wl,--no-as-needed", str(link), f"-Wl,-rpath,{everyones}", suffix="-s"), program
    )
    program.chmod(mode)
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", str(program)]
    environment = {**os.environ, "PAGELAB_PLAN": str(everyones / "no-plan")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert ("cannot use the plan" in done.stderr) == (mode == 0o755), done.stderr


@pytest.mark.parametrize("flags", [(), ("-static",), ("-O2", "-fno-pie", "-no-pie")], ids=["pie", "static", "no-pie"])
def test_without_the_library_every_function_says_so(flags: tuple[str, ...], workshop: Workshop) -> None:
    program = build(workshop, "absent", *flags, suffix="-".join(("", *flags)))
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


WITH_KERNEL_SOURCE = str(paths.include() / "pagelab_kernel.c")
WITHOUT_PLACEMENT = pytest.mark.skipif(
    Path("/proc/self/page_hints").exists(), reason="this kernel has page placement; kernel/test launcher tests it"
)


@WITHOUT_PLACEMENT
@pytest.mark.parametrize(
    ("compiler", "flags"),
    [("gcc", ()), ("gcc", ("-static",)), ("musl-gcc", ("-static",))],
    ids=["pie", "static", "musl"],
)
def test_by_the_kernel_alone_hints_are_refused_where_it_has_no_page_placement(
    compiler: str, flags: tuple[str, ...], workshop: Workshop
) -> None:
    suffix = "-".join(("", compiler, *flags))
    program = workshop.build("api/both", compiler, (INCLUDE, *flags, WITH_KERNEL_SOURCE), suffix)
    done = subprocess.run([str(program), "without"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


@WITHOUT_PLACEMENT
def test_a_go_program_asks_the_kernel_by_cgo(workshop: Workshop) -> None:
    program = workshop.go_with_cgo("api_go", [paths.include() / name for name in ("pagelab.h", "pagelab_kernel.c")])
    done = subprocess.run([str(program), "without"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


def test_the_library_comes_before_the_kernel(workshop: Workshop, run_under: Runner) -> None:
    """In a program that has both, under a policy that does not ask for the kernel."""
    program = workshop.build("api/both", flags=(INCLUDE, WITH_KERNEL_SOURCE), suffix="-either")
    said_ok(run_under(KERNEL.toml, [str(program), "library"]))


@WITHOUT_PLACEMENT
def test_under_the_kernels_backend_a_kernel_without_page_placement_is_told(
    workshop: Workshop, run_under: Runner
) -> None:
    """... and not replaced by the engine: what a policy asks for is done or refused."""
    program = workshop.build("api/both", flags=(INCLUDE,), suffix="-asking")
    run = run_under('backend = "kernel"\nframes = "kernel"\n', [str(program), "kernel"])
    assert "pagelab_start(): -95" in run.stderr, run.story()
    said_ok(run_under('backend = "auto"\nframes = "kernel"\n', [str(program), "library"]))


def test_the_programs_own_default_replaces_the_policys(workshop: Workshop, run_under: Runner) -> None:
    said_ok(run_under(TWO_PARTS.toml, [str(build(workshop, "default"))]))


def test_the_summary_shows_hints(workshop: Workshop) -> None:
    """In the terminal's table, though the policy leaves frames to the kernel."""
    command = [sys.executable, "-m", "pagelab", "run", "--frames", "kernel", "--", str(build(workshop, "hints"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    lines = [line.split() for line in (done.stdout + done.stderr).splitlines()]
    shown = {line[0]: line for line in lines if line and line[0] in ("page-coloring", "bin-hopping", "random")}
    assert set(shown) == {"page-coloring", "bin-hopping", "random"}, done.stdout + done.stderr
    assert all("100%" in line for line in shown.values()), done.stdout + done.stderr


def test_the_record_counts_hints(workshop: Workshop, run_under: Runner) -> None:
    run = run_under(KERNEL.toml, [str(build(workshop, "hints"))])
    said_ok(run)
    assert run.root.frames, run.story()
    strategies = {strategy.kind for strategy in run.root.frames.strategies}
    assert strategies >= {"page-coloring", "bin-hopping", "modulo", "random"}, run.story()
    whole = run.the_record.frames
    assert whole, "the run's sum counts them too"
    assert {strategy.kind for strategy in whole.strategies} == strategies
    assert whole.rights is None


class TestTheExample:
    """examples/fft: a program that tries the strategies on its own arrays and keeps the best."""

    ARGUMENTS = ("12", "2", "3")

    @pytest.fixture
    def fft(self, workshop: Workshop) -> Path:
        return workshop.compile(EXAMPLES / "fft/fft.c", "fft", flags=("-O2", INCLUDE, "-Wl,--no-as-needed", "-lm"))

    @staticmethod
    def checksum(text: str) -> str:
        found = re.search(r"^checksum: ([0-9a-f]{16})$", text, re.M)
        assert found, text
        return found[1]

    def alone(self, fft: Path) -> str:
        argv = [str(fft), *self.ARGUMENTS]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert "pagelab is not there" in done.stdout
        return done.stdout

    @pytest.mark.parametrize("policy", [KERNEL, COLOURED], ids=str)
    def test_it_tries_all_strategies_and_computes_the_same(
        self, policy: FramesPolicy, fft: Path, run_under: Runner
    ) -> None:
        run = run_under(policy.toml, [str(fft), *self.ARGUMENTS]).succeeded()
        tried = re.findall(r"^  (\S.*?) +median +([0-9.]+) ms", run.stdout, re.M)
        names = ["without a hint", "page-coloring", "bin-hopping", "random, seed 1", "random, seed 2"]
        assert [name for name, _ in tried] == names, run.story()
        kept = re.search(r"^kept: (.*)$", run.stdout, re.M)
        assert kept, run.story()
        medians = {name: float(median) for name, median in tried}
        assert medians[kept[1]] == min(medians.values()), run.story()
        placed = re.findall(r"(\d+) of (\d+) pages in place", run.stdout)
        assert len(placed) == 4, run.story()
        assert all(some == whole != "0" for some, whole in placed), run.story()
        assert self.checksum(run.stdout) == self.checksum(self.alone(fft))

    def test_its_makefile_builds_it(self, tmp_path: Path) -> None:
        for name in ("fft.c", "Makefile"):
            (tmp_path / name).write_text((EXAMPLES / "fft" / name).read_text())
        include = f"INCLUDE={ROOT / 'crates/preload/include'}"
        done = subprocess.run(["make", "-C", str(tmp_path), include], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "fft").exists()


class TestModules:
    """Strategies out of shared objects: pagelab_strategy.h, examples/strategies."""

    TOLD: ClassVar = {"set": {"FRAMES_STRATEGY": "bin-hopping", "FRAMES_COLOURS": "64"}, "clear": False, "unset": []}

    @pytest.fixture
    def module(self, workshop: Workshop) -> Path:
        source = EXAMPLES / "strategies/color_range.c"
        return workshop.compile(source, "color_range.so", flags=("-shared", "-fPIC", INCLUDE))

    @staticmethod
    def policy(module: Path, argument: str) -> str:
        where = f'path = "{module}", argument = "{argument}"'
        return f"""[[rule]]
memory = ["anon"]
frames = {{ kind = "module", colors = 64, {where} }}
"""

    def test_the_example_keeps_memory_in_its_colours(self, module: Path, workshop: Workshop, run_under: Runner) -> None:
        argv = [str(workshop.build("frames/order")), "700", "3"]
        run = run_under(self.policy(module, "8-19"), argv, env=self.TOLD).succeeded()
        assert run.stderr == "", run.story()
        rows = [line.split() for line in run.stdout.splitlines()]
        assert len(rows) == 700, run.story()
        for vpn, _, colour in rows:
            assert int(colour) == 8 + int(vpn, 16) % 12, run.story()

    def test_a_module_that_refuses_its_argument_is_heard_of(
        self, module: Path, workshop: Workshop, run_under: Runner
    ) -> None:
        """The program runs, its pages are the kernel's, and the record says so."""
        argv = [str(workshop.build("frames/order")), "10", "0"]
        run = run_under(self.policy(module, "8-64"), argv, env=self.TOLD).succeeded()
        assert run.the_record.frames, run.story()
        assert run.the_record.frames.engine, run.story()
        assert run.the_record.frames.engine.failure == "module", run.story()
        assert WarningKind.FRAMES_NOT_PLACED in run.kinds(), run.story()
