"""What the library takes of the program's resources: at most what the table of docs/preload.md says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from harness.frames import BY_NAME as FRAMES
from harness.frames import possible
from harness.guests import Workshop
from harness.launching import Runner, open_to_all
from harness.memory import MemoryGroup
from harness.packages import ROOT, need
from harness.policies import BY_NAME, POLICIES, Policy
from pagelab import paths

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="limits of another user are tried; run: sudo make test")
PLACING = [FRAMES["page-coloring"], FRAMES["bin-hopping"], FRAMES["pinned"]]
SWEPT = [BY_NAME[name] for name in ("kernel", "all-4K", "all-2M", "mosaic", "mthp-64K", "demand", "prefault")] + PLACING
GROUP = "memory of a control group"
NATIVE_STEP = {"RLIMIT_AS": 64 << 10, "RLIMIT_DATA": 64 << 10, "RLIMIT_STACK": 4096}
"""How exactly the smallest limit is known: address space layout is random."""


def surcharges() -> dict[str, dict[str, int]]:
    """The launcher's table: resource to column to surcharge, in bytes or pieces."""
    return {row["resource"]: row["adds"] for row in rows()}


@cache
def rows() -> list[dict[str, Any]]:
    text = subprocess.run([str(paths.launcher()), "--surcharges"], capture_output=True, text=True, check=True).stdout
    found: list[dict[str, Any]] = json.loads(text)
    return found


def column(policy: Policy) -> str:
    if policy in PLACING:
        return "frames"
    return "kernel" if policy.name in ("kernel", "demand") else "sizes"


def numbers(text: str) -> dict[str, int]:
    assert "\nok\n" in f"\n{text}", text
    return {name: int(value) for name, _, value in (line.partition(" ") for line in text.splitlines()) if value}


def told(policy: Policy, program: Path, run_under: Runner) -> dict[str, int]:
    run = run_under(policy.toml, [str(program)], env=policy.environment(), timeout_s=280.0)
    assert run.record is not None, run.story()
    assert "ok" in run.stdout, run.story()
    return numbers(run.stdout)


@pytest.fixture(params=[*POLICIES, *PLACING], ids=str)
def any_policy(request: pytest.FixtureRequest) -> Policy:
    chosen: Policy = request.param
    if chosen in PLACING:
        return possible(chosen)  # type: ignore[arg-type]
    if chosen.missing():
        pytest.skip(chosen.missing() or "")
    if chosen.huge_pages:
        request.getfixturevalue("huge_pages").need(chosen.huge_pages)
    return chosen


@pytest.fixture(params=SWEPT, ids=str)
def swept(request: pytest.FixtureRequest) -> Policy:
    chosen: Policy = request.param
    return possible(chosen) if chosen in PLACING else chosen  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def resources() -> Iterator[Path]:
    """The program, where another user can run it: every session of pytest closes the directory of all the others."""
    with tempfile.TemporaryDirectory(prefix="pagelab-resources-") as directory:
        open_to_all(Path(directory))
        yield Workshop(Path(directory)).build("resources")


def natively(program: Path) -> dict[str, int]:
    return numbers(subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout)


@pytest.fixture(scope="module")
def native_limits(resources: Path) -> dict[str, int]:
    return natively(resources)


def test_the_docs_have_the_launchers_table() -> None:
    text = (ROOT / "docs" / "preload.md").read_text().partition("\n## Resources taken from the program\n")[2]
    shown = [line for line in text.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    assert shown[0] == "| resource | kernel | sizes | frames |"
    assert shown[1:] == [row["line"] for row in rows()]


def test_the_table_has_every_resource_that_is_swept() -> None:
    source = (ROOT / "tests" / "guests" / "resources.c").read_text()
    names = {*re.findall(r'\{"(RLIMIT_\w+)"', source), "vm.max_map_count"}
    assert names == surcharges().keys() - {"stack of a call", GROUP, "space in the run directory"}
    assert len(names) == 14


def test_calls_take_little_stack(any_policy: Policy, workshop: Workshop, run_under: Runner) -> None:
    """Coroutines and signal handlers have 4 to 8 KiB, and natively a call takes some 100 bytes."""
    program = workshop.compile(ROOT / "tests/guests/stack_depth.c", "stack_depth", flags=("-Wl,-z,now",))
    native = numbers(subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout)
    depth = told(any_policy, program, run_under)
    assert depth.keys() == native.keys()
    allowed = surcharges()["stack of a call"][column(any_policy)]
    over = {name: depth[name] - native[name] for name in native if depth[name] - native[name] > allowed}
    assert over == {}, f"bytes beyond native; {allowed} are allowed"


def test_a_handler_on_a_small_stack_ends_the_program(any_policy: Policy, workshop: Workshop, run_under: Runner) -> None:
    run = run_under(any_policy.toml, [str(workshop.build("signal_small_stack"))], env=any_policy.environment())
    assert run.the_record.outcome.exit_code == 42, run.story()


@AS_ROOT
def test_limits_are_used_up_by_the_surcharge_only(
    swept: Policy, resources: Path, run_under: Runner, native_limits: dict[str, int]
) -> None:
    over = beyond(swept, told(swept, resources, run_under), native_limits)
    assert over == {}


def beyond(swept: Policy, limits: dict[str, int], native_limits: dict[str, int]) -> dict[str, str]:
    """What is needed of more resources than the table says."""
    assert limits.keys() == native_limits.keys()
    over = {}
    for name, native in native_limits.items():
        surcharge = native - limits[name] if name == "vm.max_map_count" else limits[name] - native
        allowed = surcharges()[name][column(swept)]
        if (native == -1) != (limits[name] == -1) or surcharge > allowed + NATIVE_STEP.get(name, 0):
            over[name] = f"{native} natively, {limits[name]} under {swept}; {allowed} allowed"
    return over


def lives_in(run: Callable[[MemoryGroup], bool], kib: int) -> bool:
    """Whether all of three runs in a group of this size do what they have to."""

    def once() -> bool:
        with MemoryGroup("pagelab-test-room", kib, swap=False, unit=1 << 10) as group:
            return run(group)

    return all(once() for _ in range(3))


@pytest.fixture(scope="module")
def native_groups(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, int]]:
    """The program; MiB that it uses → KiB of the smallest group that it lives in, to 64."""
    program = Workshop(tmp_path_factory.mktemp("group")).build("group_memory")
    found = {}
    for mebibytes in (4, 16, 64):

        def natively(group: MemoryGroup, mebibytes: int = mebibytes) -> bool:
            argv = [*group.prefix(), str(program), str(mebibytes)]
            return subprocess.run(argv, capture_output=True, check=False).returncode == 0

        least, enough = mebibytes << 10, (mebibytes + 4) << 10
        assert lives_in(natively, enough)
        while enough - least > 64:
            middle = (least + enough) // 2
            least, enough = (least, middle) if lives_in(natively, middle) else (middle, enough)
        found[mebibytes] = enough
    return program, found


@AS_ROOT
def test_a_control_group_is_used_up_by_the_surcharge_only(
    swept: Policy, native_groups: tuple[Path, dict[int, int]], run_under: Runner
) -> None:
    """However large the program is, a forked child of it included."""
    program, least = native_groups
    for mebibytes, natively in least.items():

        def under_policy(group: MemoryGroup, mebibytes: int = mebibytes) -> bool:
            run_under.prefix = group.prefix()
            run = run_under(swept.toml, [str(program), str(mebibytes)], env=swept.environment())
            lived = run.launcher_exit == 0 and run.stdout == "ok\n"
            if not lived:
                print(run.story())
            return lived

        kib = natively + surcharges()[GROUP][column(swept)] // 1024
        assert lives_in(under_policy, kib), f"{mebibytes} MiB in a group of {kib} KiB, natively {natively}"


@contextmanager
def file_system(place: Path, kib: int) -> Iterator[Path]:
    place.mkdir()
    mounted = subprocess.run([need("mount"), "-t", "tmpfs", "-o", f"size={kib}k", "none", str(place)], check=False)
    if mounted.returncode != 0:
        pytest.skip("no file system can be mounted here; run as root of the machine: sudo make test")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@AS_ROOT
@pytest.mark.parametrize("kib", [64, 128, 512])
def test_a_full_run_directory_ends_no_program(kib: int, tmp_path: Path, run_under: Runner, swept: Policy) -> None:
    """Programs that come when it is full run on, without a record of their own."""
    script = "for i in $(seq 60); do /bin/true || exit 9; done; /bin/echo done"
    with file_system(tmp_path / "full", kib) as place:
        run = run_under(swept.toml, ["bash", "-c", script], run_dir_root=str(place))
        assert run.record is not None, run.story()
        assert run.the_record.outcome.status == "ok", run.story()
        assert run.stdout == "done\n"
        assert list(place.iterdir()) == []
