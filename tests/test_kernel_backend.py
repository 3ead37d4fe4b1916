"""``backend = "kernel"`` where the kernel has no page placement, and what doctor and stat say where it has.

Programs that run under it: ``kernel/test launcher``, in a machine with the series.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.guests import Workshop
from pagelab import policy
from pagelab.machine import page_color
from pagelab.machine.probe import Context, Probe
from pagelab.machine.probes_kernel import QUESTIONS
from pagelab.machine.sysfs import Tree

STATISTICS = """\
page-coloring placed 900 unasked 0 absent 7 bound 0 watermark 0 scanned 1200 longest 44 drained 2 orders 5 0 895
bin-hopping placed 0 unasked 0 absent 0 bound 0 watermark 0 scanned 0 longest 0 drained 0 orders 0 0 0
"""
USUAL = "usual placed 0 unasked 31 absent 0 bound 0 watermark 0 scanned 0 longest 0 drained 0 orders 0 0 0\n"
"""The strategy that each kernel of the series has, without any module."""
WITHOUT = pytest.mark.skipif(Path("/proc/self/page_hints").exists(), reason="this kernel has page placement")
COLORING = "page-coloring:colors=16"


def pagelab(*words: str, root: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = dict(os.environ) | ({"PAGELAB_SYSROOT": str(root)} if root else {})
    command = [sys.executable, "-m", "pagelab", *words]
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


@pytest.fixture
def patched(tmp_path: Path) -> Path:
    """The files of a kernel with page placement."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/page_hints").write_text("")
    (tmp_path / "proc/page_color").write_text(USUAL + STATISTICS)
    return tmp_path


def kernel_frames(root: Path) -> Probe:
    (question,) = (one for one in QUESTIONS if one.name == "kernel-frames")
    (probe,) = question.answer(Context(Tree(root), pagelab="pagelab"))
    return probe


@WITHOUT
def test_a_kernel_without_page_placement_is_refused_with_the_next_step(workshop: Workshop) -> None:
    static = str(workshop.build("static_program", flags=("-static",)))
    done = pagelab("run", "--backend", "kernel", "--frames", COLORING, "--", static)
    assert done.returncode == 3, done.stderr
    assert "has no page placement" in done.stderr
    assert "kernel/README.md" in done.stderr
    assert "--backend library" in done.stderr
    assert done.stdout == ""


@WITHOUT
def test_auto_is_the_library_there(workshop: Workshop) -> None:
    static = str(workshop.build("static_program", flags=("-static",)))
    done = pagelab("run", "--backend", "auto", "--frames", COLORING, "--", static)
    assert done.returncode == 3, done.stderr
    assert "statically linked" in done.stderr
    assert "--backend kernel" in done.stderr


@WITHOUT
def test_a_study_says_before_its_first_run_that_such_a_policy_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(
        'name = "backends"\nexecutions = 5\n[[workload]]\nname = "true"\ncommand = ["true"]\n'
        '[[policy]]\nname = "plain"\n'
        '[[policy]]\nname = "placed"\nframes = { random = { colors = 8 } }\nbackend = "kernel"\n'
    )
    done = pagelab("study", "run", "--dry-run", str(tmp_path / "study.toml"), "--into", str(tmp_path / "into"))
    assert "has no page placement" in " ".join((done.stdout + done.stderr).split()), (done.stdout, done.stderr)


def test_what_no_hint_says_is_refused_before_anything_runs() -> None:
    done = pagelab("run", "--backend", "kernel", "--frames", "anon=random:colors=16", "--", "true")
    assert done.returncode == 2, done.stderr
    assert "malloc's arenas are mappings like others" in done.stderr
    assert "--backend library" in done.stderr


def test_an_unknown_backend_is_told_with_those_there_are() -> None:
    done = pagelab("run", "--backend", "magic", "--frames", "random", "--", "true")
    assert done.returncode == 2
    assert "--backend magic" in done.stderr
    assert "allowed: library, kernel, auto" in done.stderr


def test_flags_override_the_backend_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text('frames = { random = { colors = 8 } }\nbackend = "kernel"\n')
    assert policy.load(file).backend == "kernel"
    assert policy.from_flags(policy.Flags(), base=file).backend == "kernel"
    assert policy.from_flags(policy.Flags(backend="auto"), base=file).backend == "auto"
    assert policy.from_flags(policy.Flags(frames=["random"])).backend == "library"


def test_doctor_names_the_strategies_of_the_kernel(patched: Path) -> None:
    probe = kernel_frames(patched)
    assert (probe.status, probe.text) == ("ok", "bin-hopping, page-coloring")


def test_doctor_says_what_is_to_do_without_them(patched: Path) -> None:
    (patched / "proc/page_color").write_text(USUAL)
    probe = kernel_frames(patched)
    assert probe.status == "degraded"
    assert "modprobe placement_page_coloring" in (probe.needs or "")
    (patched / "proc/self/page_hints").unlink()
    probe = kernel_frames(patched)
    assert probe.status == "unsupported"
    assert "kernel/README.md" in (probe.needs or "")


def test_stat_shows_what_the_kernel_placed(patched: Path) -> None:
    shown = pagelab("stat", "--system", root=patched)
    assert shown.returncode == 0, shown.stderr
    rows = {line.split()[0]: line.split()[1:] for line in shown.stdout.splitlines() if line.split()}
    assert rows["placed"] == ["900", "0"]
    assert rows["absent"] == ["7", "0"]
    assert "order 1" not in shown.stdout
    as_json = json.loads(pagelab("stat", "--system", "--json", root=patched).stdout)
    assert as_json["strategies"]["page-coloring"]["order_2"] == 895


def test_stat_says_what_is_to_do_without_strategies(patched: Path) -> None:
    (patched / "proc/page_color").write_text(USUAL)
    shown = pagelab("stat", "--system", root=patched)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout == "no strategy is loaded; run: sudo modprobe placement_page_coloring\n"
    as_json = json.loads(pagelab("stat", "--system", "--json", root=patched).stdout)
    assert as_json["strategies"]["usual"]["unasked"] == 31


def test_stat_without_page_placement_is_refused(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    done = pagelab("stat", "--system", root=tmp_path)
    assert done.returncode == 3
    assert "has no page placement" in done.stderr
    both = pagelab("stat", "--system", "1")
    neither = pagelab("stat")
    assert (both.returncode, neither.returncode) == (2, 2)


@pytest.mark.parametrize("text", ["", "\n\n", "modulo placed many", "modulo placed"])
def test_lines_that_are_no_counts_are_left_out(text: str) -> None:
    assert page_color.parse(text) == {}


def test_counts_are_those_of_the_file() -> None:
    counts = page_color.parse(STATISTICS)["page-coloring"]
    assert (counts["placed"], counts["longest"], counts["order_0"], counts["order_2"]) == (900, 44, 5, 895)
