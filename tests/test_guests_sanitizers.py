"""Programs built with compilers' sanitizers, whose runtimes have address ranges of their own, run unharmed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.frames import BY_NAME as FRAMES
from harness.frames import possible
from harness.guests import Workshop
from harness.launching import Runner
from harness.packages import need
from harness.policies import BY_NAME
from pagelab.record import WarningKind

POOLS, POOLS_END = 0x6700_0000_0000, 0x7700_0000_0000
POLICIES = ["kernel", "all-4K", "all-2M", "mosaic"]
SANITIZERS = {
    "address": ("-fsanitize=address",),
    "address-static": ("-fsanitize=address", "-static-libasan"),
    "thread": ("-fsanitize=thread",),
    "thread-static": ("-fsanitize=thread", "-static-libtsan"),
    "leak": ("-fsanitize=leak",),
    "undefined": ("-fsanitize=undefined",),
}


@pytest.fixture(params=SANITIZERS)
def sanitizer(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Each sanitizer that the compiler here has."""
    chosen: str = request.param
    command = ["gcc", *SANITIZERS[chosen], "-x", "c", "-", "-o", str(tmp_path / "probe")]
    probe = subprocess.run(command, input="int main(void) { return 0; }", capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        pytest.skip(
            f"gcc has no runtime for {' '.join(SANITIZERS[chosen])}; run: apt-get install gcc libasan8 libtsan2"
        )
    return chosen


def built(workshop: Workshop, sanitizer: str) -> str:
    return str(workshop.build("sanitized", flags=SANITIZERS[sanitizer], suffix=f"-{sanitizer}"))


@pytest.mark.parametrize("name", POLICIES)
def test_sanitized_programs_run_unharmed(name: str, sanitizer: str, workshop: Workshop, run_under: Runner) -> None:
    run = run_under(BY_NAME[name].toml, [built(workshop, sanitizer)]).succeeded()
    mapped, verdict = run.stdout.split()
    assert verdict == "ok", run.story()
    places_its_own = sanitizer.startswith("thread")
    governed = name != "kernel" and not places_its_own
    assert (POOLS <= int(mapped, 16) < POOLS_END) == governed, run.story()
    if governed:
        assert WarningKind.FALLBACK_TO_KERNEL not in run.kinds(), run.story()


@pytest.mark.parametrize("name", POLICIES)
def test_thread_sanitizer_is_left_alone_and_that_is_said(name: str, workshop: Workshop, run_under: Runner) -> None:
    run = run_under(BY_NAME[name].toml, [built(workshop, "thread")]).succeeded()
    said = [warning for warning in run.the_record.warnings if warning.kind is WarningKind.GUEST_DISABLED]
    assert [warning.data["reason"] for warning in said] == ([] if name == "kernel" else ["sanitizer"]), run.story()


@pytest.mark.parametrize("start", ["__tsan_init", "__msan_init", "__dfsan_union_load"])
def test_runtimes_with_places_of_their_own_are_recognised(start: str, workshop: Workshop, run_under: Runner) -> None:
    """By a name that each one exports: gcc has only the first of these runtimes. Regression: DataFlowSanitizer, which
    allows no memory where the pools are, was not known."""
    flags = (f"-Dkeep_me={start}", "-Wl,--export-dynamic")
    program = workshop.build("exports_one_name", flags=flags, suffix=f"-{start}")
    run = run_under(BY_NAME["all-4K"].toml, [str(program)]).succeeded()
    said = [warning for warning in run.the_record.warnings if warning.kind is WarningKind.GUEST_DISABLED]
    assert [warning.data["reason"] for warning in said] == ["sanitizer"], run.story()


@pytest.mark.parametrize("name", ["kernel", "all-2M", "page-coloring"])
def test_valgrind_runs_programs_unharmed(name: str, workshop: Workshop, run_under: Runner) -> None:
    """Regression: valgrind ended programs whose frames were to be placed, since it knows no threads past libc."""
    toml = BY_NAME[name].toml if name in BY_NAME else possible(FRAMES[name]).toml
    command = [need("valgrind"), "-q", str(workshop.build("fork_child"))]
    run = run_under(toml, ["bash", "-c", '"$0" "$@"; exit $?', *command]).succeeded()
    assert run.stdout == "ok\n", run.story()
    assert ("ran ungoverned: sanitizer" in run.story()) == (name in FRAMES), run.story()


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("linked", ["address", "address-static"])
def test_address_sanitizer_still_finds_what_it_looks_for(
    linked: str, name: str, workshop: Workshop, run_under: Runner
) -> None:
    run = run_under(BY_NAME[name].toml, [built(workshop, linked), "overflow"])
    assert run.the_record.outcome.status == "failed", run.story()
    assert "heap-buffer-overflow" in run.stderr, run.story()


@pytest.mark.parametrize("name", ["page-coloring", "with-tiles"])
@pytest.mark.parametrize("linked", ["address", "address-static", "leak"])
def test_leaks_are_found_where_frames_are_to_be_placed(
    linked: str, name: str, workshop: Workshop, run_under: Runner
) -> None:
    """Regression: the search for leaks stops all threads, and waited for ever for the one that places frames."""
    run = run_under(possible(FRAMES[name]).toml, [built(workshop, linked), "leak"], timeout_s=60.0)
    assert run.the_record.outcome.status == "failed", run.story()
    assert "detected memory leaks" in run.stderr, run.story()
    said = [warning for warning in run.the_record.warnings if warning.kind is WarningKind.FRAMES_NOT_PLACED]
    assert {warning.data["reason"] for warning in said} == {"sanitizer"}, run.story()
