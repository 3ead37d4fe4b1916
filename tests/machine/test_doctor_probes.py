"""Probes on invented machines, and the isolation of those that fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_machine import THP, FakeTree, build

from pagelab.machine import noise
from pagelab.machine.doctor import QUESTIONS
from pagelab.machine.probe import Context, Finding, Question
from pagelab.machine.probes_rights import counters_finding, decode


def answer(context: Context, name: str) -> dict[str, Finding]:
    (question,) = (question for question in QUESTIONS if question.name == name)
    return {probe.name: probe for probe in question.answer(context)}


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(build(tmp_path / "root"), pagelab="pagelab")


def test_a_probe_that_fails_is_an_answer_and_no_error(context: Context) -> None:
    def broken(_context: Context) -> Finding:
        raise ZeroDivisionError("oops")

    (probe,) = Question("x", "host", "y", broken).answer(context)
    assert (probe.status, probe.text) == ("unknown", "the probe failed: ZeroDivisionError: oops")


def test_every_question_answers_on_a_machine_with_hardly_anything(tmp_path: Path) -> None:
    context = Context(FakeTree(tmp_path), pagelab="pagelab")
    for question in QUESTIONS:
        if question.group != "noise":
            for probe in question.answer(context):
                assert "the probe failed" not in probe.text, (probe.name, probe.text)
                assert probe.why


def test_names_of_questions_are_unique() -> None:
    names = [question.name for question in QUESTIONS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("mode", "switch", "status", "key"),
    [
        ("always [madvise] never", None, "ok", None),
        ("always madvise [never]", None, "degraded", "thp=madvise"),
        ("always madvise [never]", "always inherit [madvise] never", "ok", None),
        ("always [madvise] never", "always inherit madvise [never]", "degraded", "thp-2M=inherit"),
        ("always madvise [never]", "always [inherit] madvise never", "degraded", "thp=madvise"),
    ],
)
def test_thp_follows_both_switches(
    context: Context, mode: str, switch: str | None, status: str, key: str | None
) -> None:
    context.tree.path(THP).write_text(f"{mode}\n")
    if switch:
        path = context.tree.path("/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled")
        path.parent.mkdir()
        path.write_text(f"{switch}\n")
    found = answer(context, "thp")["thp"]
    assert found.status == status
    assert found.needs == (f"sudo pagelab doctor --fix {key}" if key else None)


def test_advice_is_for_the_host_inside_a_container(context: Context) -> None:
    context.tree.path("/.dockerenv").write_text("")
    assert context.container.kind == "docker"
    found = answer(context, "hugetlb")["hugetlb-2M"]
    assert found.needs == "on the host: sudo pagelab doctor --fix hugepages-2M=512"
    assert answer(context, "container")["container"].needs == "pagelab doctor --print docker"


def test_a_pool_in_use_is_advised_to_grow(context: Context) -> None:
    """Regression: for 600 pages that were all in use, the advice was to make them 512."""
    context.tree.path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages").write_text("600\n")
    found = answer(context, "hugetlb")["hugetlb-2M"]
    assert (found.text, found.status) == ("600 pages, 0 available", "absent")
    assert found.needs == "sudo pagelab doctor --fix hugepages-2M=1112"


def told(advertised: int, usable: int, problem: str | None = None, known: str | None = "Zen 4") -> dict[str, Any]:
    """What the launcher's self-test prints."""
    events = [{"role": "tlb.walks", "verified": True}, {"role": "tlb.hits", "verified": False}] if known else []
    hardware = {"advertised": advertised, "usable": usable, "problem": problem}
    return {"processor": "…", "microarchitecture": known, "hardware": hardware, "events": events}


@pytest.mark.parametrize(
    ("report", "status", "said"),
    [
        (told(6, 5), "ok", "5 of 6 count; the others are not used; Zen 4: 2 events, 1 verified"),
        (told(4, 4), "ok", "4 count; Zen 4"),
        (told(4, 4, known=None), "degraded", "no events known"),
        (told(4, 0), "unsupported", "4 can be opened, none counts"),
        (told(0, 0, "Permission denied (EACCES)"), "denied", "EACCES"),
        (told(0, 0, "No such file or directory (ENOENT)"), "unsupported", "ENOENT"),
        ([], "unknown", "form"),
        ({"else": 1}, "unknown", "form"),
    ],
)
def test_counters_that_do_not_count_are_told(context: Context, report: Any, status: str, said: str) -> None:
    found = counters_finding(context, report)
    assert found.status == status
    assert said in found.text


def test_capabilities_have_their_names() -> None:
    assert decode(1 << 21 | 1 << 38 | 1 << 19) == ["CAP_SYS_PTRACE", "CAP_SYS_ADMIN", "CAP_PERFMON"]
    assert decode(1 << 60) == ["CAP_60"]
    assert decode(0) == []


def test_steal_is_a_fraction_of_all_time(tmp_path: Path) -> None:
    stat = tmp_path / "proc/stat"
    stat.parent.mkdir()
    stat.write_text("cpu  10 0 10 80 0 0 0 0 0 0\ncpu0 1 2 3\n")
    before = noise._steal(FakeTree(tmp_path))
    stat.write_text("cpu  20 0 20 130 0 0 0 30 0 0\ncpu0 1 2 3\n")
    assert noise._steal_fraction(before, noise._steal(FakeTree(tmp_path))) == pytest.approx(0.3)
    stat.unlink()
    assert noise._steal_fraction(before, noise._steal(FakeTree(tmp_path))) is None
