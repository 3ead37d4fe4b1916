"""The kernel series: the checks of a guest's console, and, where a kernel is built, the guest's tests themselves."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
KERNEL = ROOT / "kernel"

FINE = """\
=== kernel
Linux version 6.12
=== wanted
 vectors
=== vectors
ok
=== exit vectors 0
=== statistics
page-coloring placed 1
=== log
[    0.1]     KTAP version 1
[    0.2]     ok 1 low_bits_take_any_count
[    0.3]     ok 2 masks_are_parities
[    0.4]     ok 3 blocks_are_searched_as_naively
[    0.5] ok 1 page_colors
=== end
"""


def check(console: str, place: Path, tests: str = "placement") -> tuple[int, str]:
    """Exit code and what was complained about."""
    (place / "console.log").write_text(console)
    command = [sys.executable, "-m", "kernel.check", str(place / "console.log"), tests]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_a_fine_console_is_fine(tmp_path: Path) -> None:
    assert check(FINE, tmp_path) == (0, "")


@pytest.mark.parametrize(
    ("was", "is_now", "said"),
    [
        ("=== exit vectors 0", "=== exit vectors 1", "vectors: exit code 1: ok"),
        ("=== exit vectors 0\n", "", "no test was run"),
        ("=== exit vectors 0\n", "=== exit vectors [    1.2] zram: 0\n", "vectors: no exit code"),
        (" vectors\n", " vectors fork\n", "fork: not run"),
        ("=== wanted\n vectors\n", "", "does not say which tests were to run"),
        ("=== end\n", "", "did not come to the end"),
        (
            "=== end\n",
            "[    0.9] page_color_slab: needs page_color=<kB>[,<ways>][,<strategy>]\n=== end",
            "page_color_slab=0 is taken for page_color_slab",
        ),
        (
            "=== end\n",
            "[    9.9] WARNING: CPU: 0 PID: 1 at mm/page_alloc.c:1\n=== end",
            "the kernel says: [    9.9] WARNING",
        ),
        ("\nok\n", "\nok\n[ 9.9] Call Trace:\n", "the kernel says: [ 9.9] Call Trace"),
        ("\nok\n", "\nok\n[ 9.9] BUG: Bad page state in process x\n", "the kernel says: [ 9.9] BUG"),
        ("    ok 3 blocks", "    not ok 3 blocks", "KUnit: [    0.4]     not ok 3"),
        ("[    0.4]     ok 3 blocks_are_searched_as_naively\n", "", "KUnit's cases of page colors did not run"),
        ("=== log\n", "=== log\npage_color=1000,7,nonsense: -EINVAL\n", "the bad boot parameter is complained about"),
    ],
)
def test_a_console_with_trouble_is_not(tmp_path: Path, was: str, is_now: str, said: str) -> None:
    assert was in FINE
    code, complaints = check(FINE.replace(was, is_now), tmp_path)
    assert code == 1
    assert said in complaints


def test_a_machine_that_does_not_end_is_told_with_its_last_line(tmp_path: Path) -> None:
    code, complaints = check(FINE.replace("=== end\n", "\nemulated_boot: QEMU was ended after 60 s\n\n"), tmp_path)
    assert code == 1
    assert "the console's last line: emulated_boot: QEMU was ended after 60 s" in complaints
    assert "last line: (there is none)" in check("", tmp_path)[1]


def emulated_boot(place: Path, emulator: str, clock: int = 60) -> str:
    """The console of a boot with another program in QEMU's place, which may take a second of processor time."""
    (place / "qemu-system-x86_64").write_text(f"#!/bin/sh\n{emulator}\n")
    (place / "qemu-system-x86_64").chmod(0o755)
    boot = f"emulated_boot 1 {place}/log kernel initrd extra=1"
    boot = f". tests/harness/emulated.sh; PATH={place}:$PATH; emulated_clock={clock}; {boot}"
    subprocess.run(["bash", "-euc", boot], cwd=ROOT, check=True, capture_output=True)
    return (place / "log").read_text()


def test_an_emulator_is_ended_by_processor_time_and_the_console_says_so(tmp_path: Path) -> None:
    console = emulated_boot(tmp_path, "echo begun; while :; do :; done")
    assert console == "begun\n\nemulated_boot: QEMU ended with code 152 (152: after 1 s of processor time)\n"


def test_an_emulator_that_waits_longer_than_its_processor_time_is_not_ended(tmp_path: Path) -> None:
    assert emulated_boot(tmp_path, "sleep 1.5; echo fine") == "fine\n"


def test_an_emulator_that_sleeps_is_ended_by_the_clock(tmp_path: Path) -> None:
    assert emulated_boot(tmp_path, "exec sleep 600", clock=2) == "\nemulated_boot: QEMU was ended after 2 s\n"


def test_an_emulated_kernel_does_not_test_its_timer(tmp_path: Path) -> None:
    """On a busy machine it panicked: QEMU's thread of timers did not run while the processor's waited for ticks."""
    said = emulated_boot(tmp_path, 'echo "$@"')
    assert "-append console=ttyS0 quiet panic=-1 no_timer_check extra=1\n" in said


def test_patches_say_who_signs_them_and_what_they_do() -> None:
    patches = sorted((KERNEL / "patches").glob("*.patch"))
    assert [patch.name[:4] for patch in patches] == [f"{number:04}" for number in range(1, len(patches) + 1)]
    assert len(patches) > 5
    for patch in patches:
        header, _, _ = patch.read_text().partition("\ndiff --git")
        message = header.partition("\n\n")[2].partition("\nSigned-off-by: ")[0]
        assert re.search(r"^Signed-off-by: .+ <.+@.+>$", header, re.MULTILINE), patch.name
        assert len(message.split()) > 30, f"{patch.name} says too little"


EFFECT = """\
=== effect
placed 0 fallen 0 most-of-a-color 11
placed 0 fallen 0 most-of-a-color 9
placed 0 fallen 0 most-of-a-color 10
placed 0 fallen 0 most-of-a-color 12
=== exit effect 0
=== end
"""


def windows(console: str, counted: int, place: Path) -> subprocess.CompletedProcess[str]:
    """What ``kernel/effect`` makes of a boot's console and of so many windows."""
    line = {"levels": [{"loads": 10, "stores": 5}], "memory_reads": 7}
    (place / "log").write_text(console)
    (place / "windows").write_text("".join(json.dumps(line | {"window": at}) + "\n" for at in range(counted)))
    command = [sys.executable, "-m", "kernel.windows", str(place / "log"), str(place / "windows"), "3"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_windows_of_a_boot_are_measurements_that_the_study_finds(tmp_path: Path) -> None:
    done = windows(EFFECT, 4, tmp_path)
    assert done.returncode == 0, done.stderr
    study = tomllib.loads((ROOT / "studies" / "kernel-effect.toml").read_text())
    for workload in study["workload"]:
        found = re.findall(workload["measure"]["regex"], done.stdout)
        assert found == [("misses", "7", "lines")] * 4
    assert "most pages of a color 12" in done.stdout


@pytest.mark.parametrize(
    ("was", "is_now", "counted"),
    [
        ("", "", 3),
        ("exit effect 0", "exit effect 1", 4),
        ("=== end", "[    9.9] WARNING: CPU: 0 PID: 1 at mm/page_alloc.c:1\n=== end", 4),
        ("placed 0 fallen 0 most-of-a-color 12\n", "", 4),
    ],
)
def test_a_boot_that_went_wrong_measures_nothing(tmp_path: Path, was: str, is_now: str, counted: int) -> None:
    done = windows(EFFECT.replace(was, is_now), counted, tmp_path)
    assert done.returncode == 1
    assert "misses" not in done.stdout
    assert "seed 3: the boot failed" in done.stderr


def a_boot_of_paths(
    place: Path, name: str, values: list[tuple[str, float, int]], exit_code: int = 0, placed: bool | None = None
) -> None:
    """Console and windows of a boot: name of a row, instructions, misses."""
    placed = name.startswith("colored") if placed is None else placed
    lines = [json.dumps({"name": f"kernel-paths.{row}", "value": value, "unit": "ticks"}) for row, value, _ in values]
    said = "pagelab-workload: left out: tcp: no TCP over loopback here\n"
    counts = f"=== statistics\nusual placed 0 unasked 0\nbin-hopping placed {9 if placed else 0} unasked 0"
    parts = ["=== paths", f"=== exit paths {exit_code}", f"=== said\n{said}=== measured", *lines]
    sections = [*parts, *([] if name.startswith("stock") else [counts]), "=== end", ""]
    (place / f"{name}.log").write_text("\r\n".join(sections))
    windows = [json.dumps({"window": at, "memory_reads": misses}) for at, (_, _, misses) in enumerate(values)]
    (place / f"{name}.windows").write_text("\n".join(windows) + "\n")


def table_of_paths(place: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kernel.paths_table", str(place)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_table_of_paths_has_medians_before_and_after(tmp_path: Path) -> None:
    for memory in ("fresh", "fragmented"):
        once = [("fork", 1000.0, 7), ("pipe", 50.0, 0)]
        a_boot_of_paths(tmp_path, f"stock-{memory}", [*once, ("fork", 3000.0, 9), ("pipe", 50.0, 0), *once])
        a_boot_of_paths(tmp_path, f"patched-{memory}", [("fork", 1010.0, 8), ("pipe", 50.0, 0)])
        a_boot_of_paths(tmp_path, f"colored-{memory}", [("fork", 1500.0, 1), ("pipe", 40.0, 2)])
    done = table_of_paths(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("| fork | 1,000 | +1.00% | 1.500× | 7 | 8 | 1 |") == 2
    assert done.stdout.count("| pipe | 50 | +0.00% | 0.800× | 0 | 0 | 2 |") == 2
    assert "left out: tcp: no TCP" in done.stdout


@pytest.mark.parametrize("wrong", ["exit", "windows", "kernel", "unplaced", "placed"])
def test_a_boot_of_paths_that_went_wrong_makes_no_table(tmp_path: Path, wrong: str) -> None:
    for memory in ("fresh", "fragmented"):
        for kernel in ("stock", "patched", "colored"):
            bad = wrong == "exit" and kernel == "patched"
            a_boot_of_paths(tmp_path, f"{kernel}-{memory}", [("fork", 1.0, 1)], exit_code=int(bad))
    if wrong in ("unplaced", "placed"):
        name = "colored-fresh" if wrong == "unplaced" else "patched-fresh"
        a_boot_of_paths(tmp_path, name, [("fork", 1.0, 1)], placed=wrong == "placed")
    if wrong == "windows":
        (tmp_path / "patched-fresh.windows").write_text("")
    if wrong == "kernel":
        log = tmp_path / "patched-fresh.log"
        log.write_text(log.read_text().replace("=== end", "[ 9.9] BUG: Bad page state\n=== end"))
    done = table_of_paths(tmp_path)
    assert done.returncode == 1
    assert ("colored-fresh.log" if wrong == "unplaced" else "patched-fresh.log") in done.stderr
    assert "| fork" not in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_paths_of_both_kernels() -> None:
    for words in (["--with", "inet"], ["--stock", "--with", "inet"]):
        if subprocess.run([KERNEL / "build", "--cached", *words], capture_output=True, check=False).returncode != 0:
            pytest.skip(f"this kernel is not built; run: kernel/build {' '.join(words)}")
    command = [KERNEL / "paths", "--repetitions", "1", "null-call", "switch-2p-0k", "memory-read"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"^\| (null-call|switch-2p-0k|memory-read, a KiB) \|", done.stdout, re.MULTILINE)
    assert rows == ["null-call", "switch-2p-0k", "memory-read, a KiB"] * 2


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_guest_programs_on_the_patched_kernel() -> None:
    cached = subprocess.run([KERNEL / "build", "--cached"], capture_output=True, text=True, check=False)
    if cached.returncode != 0:
        pytest.skip("no kernel is built of this series; run: make kernel-test")
    done = subprocess.run([KERNEL / "test"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def series_version(place: Path) -> str:
    command = f"here={place}; PAGELAB_KERNEL_CACHE={place}/cache; . {KERNEL}/source.sh; series_version"
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command], capture_output=True, text=True, check=True
    ).stdout


def test_packages_of_two_series_have_two_versions_and_the_later_is_the_newer(tmp_path: Path) -> None:
    def commit(text: str, when: str) -> str:
        (tmp_path / "patches/0001-x.patch").write_text(text)
        env = {"GIT_COMMITTER_DATE": when, "GIT_AUTHOR_DATE": when, "HOME": str(tmp_path), "PATH": os.environ["PATH"]}
        git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@y"]
        subprocess.run([*git, "add", "patches"], check=True)
        subprocess.run([*git, "commit", "-qm", "x"], env=env, check=True)
        return series_version(tmp_path)

    (tmp_path / "patches").mkdir()
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    first = commit("one\n", "2026-01-02T03:04:05 +0200")
    second = commit("two\n", "2026-01-02T03:05:05 +0200")
    assert re.fullmatch(r"202601020104\.[0-9a-f]{8}\n", first)
    assert re.fullmatch(r"202601020105\.[0-9a-f]{8}\n", second)
    assert first.split(".")[1] != second.split(".")[1]
    assert series_version(tmp_path) == second
    (tmp_path / "patches/0001-x.patch").write_text("three\n")
    assert series_version(tmp_path) > second, "what is not committed is newer than all that is"
