"""What disturbs: measured on this machine, judged on figures of machines that are known to be disturbed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pagelab.machine import noise
from pagelab.machine.noise import Noise, judge
from pagelab.machine.probe import Context
from pagelab.machine.sysfs import Tree
from pagelab.study.launching import noise_now
from pagelab.study.primary import is_processor_time

QUIET = Noise(5000, 99_000, 100_000, 105_000, 200_000, 0.01, 0.001, 3, 0.0, 0.001, 20e9, 0.02)


def named(found: Noise, *, wall: bool = True) -> list[tuple[str, bool]]:
    return [(one.what, one.much) for one in judge(found, wall=wall).disturbances]


def test_a_long_tail_alone_disturbs_nothing() -> None:
    """Interrupts stretch one quantum in a hundred on every machine; executions last for thousands of quanta."""
    assert judge(replace(QUIET, p99_ns=163_000)).quiet
    assert "p99 1.63×" in judge(replace(QUIET, p99_ns=163_000)).text


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"preempted_fraction": 0.02}, [("scheduling", False)]),
        ({"preempted_fraction": 0.60}, [("scheduling", True)]),
        ({"steal_fraction": 0.08}, [("steal", True)]),
        ({"steal_fraction": None}, []),
        ({"memory_spread": 0.2}, [("memory", False)]),
        ({"memory_spread": 0.3}, [("memory", True)]),
        ({"memory_spread": None, "memory_bytes_per_s": None}, []),
        ({"clock_fraction": 0.05}, [("clock", False)]),
        ({"memory_spread": 0.3, "steal_fraction": 0.02}, [("memory", True), ("steal", False)]),
    ],
)
def test_what_disturbs_is_named_and_the_worst_comes_first(
    change: dict[str, float | None], found: list[tuple[str, bool]]
) -> None:
    assert named(replace(QUIET, **change)) == found  # type: ignore[arg-type]


def test_advice_on_memory_has_a_number() -> None:
    (one,) = judge(replace(QUIET, memory_spread=0.07)).disturbances
    assert one.advice == (
        "in programs larger than the caches, this alone may need 42 executions of each setting for ±3%"
    )


def test_a_disturbance_is_not_said_to_be_all_that_scatters() -> None:
    """Regression: "up to 6 executions of each setting may be needed", and below the answer "about 553"."""
    (one,) = judge(replace(QUIET, steal_fraction=0.02)).disturbances
    assert one.advice == "times may scatter as much: this alone may need 6 executions of each setting for ±3%"


def test_processor_time_is_advised_in_the_words_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: commands without a study.toml advised to edit it, and doctor an option that it does not have."""
    busy = replace(QUIET, preempted_fraction=0.6)
    monkeypatch.setattr(noise, "measure", lambda _tree: busy)
    plan: Any = SimpleNamespace(active=lambda: [SimpleNamespace(metric="wall_s")])
    in_a_study, by_option = (noise_now(plan, by_option=one) for one in (False, True))
    assert in_a_study is not None
    assert in_a_study.message.endswith('; stop them, or compare processor time: metric = "cpu_s" in study.toml')
    assert by_option is not None
    assert by_option.message.endswith("; stop them, or compare processor time: --metric cpu_s")
    told = noise._ask(Context()).needs
    assert told is not None
    assert told.endswith("try, compare, advise and diagnose have --metric cpu_s")


def test_the_governor_is_advised_only_where_there_is_one(tmp_path: Path) -> None:
    """Regression: in virtual machines without a frequency driver, ``--fix governor=performance`` was advised."""
    changing = replace(QUIET, clock_fraction=0.392)
    (one,) = judge(changing, tree=Tree(tmp_path)).disturbances
    assert one.advice == "the host sets the clock: more executions average it out"
    policy = tmp_path / "sys/devices/system/cpu/cpufreq/policy0"
    policy.mkdir(parents=True)
    (policy / "scaling_governor").write_text("powersave\n")
    (one,) = judge(changing, tree=Tree(tmp_path)).disturbances
    assert one.advice == "fix the governor: sudo pagelab doctor --fix governor=performance"


def test_scheduling_is_nothing_to_processor_time() -> None:
    busy = replace(QUIET, preempted_fraction=0.6, memory_spread=0.1)
    assert named(busy, wall=False) == [("memory", False)]


@pytest.mark.parametrize(
    ("metric", "found"),
    [
        ("wall_s", False),
        ("cpu_s", True),
        ("measure.work.cpu", True),
        ("measure.work", False),
        ("measure.cpu", False),
        ("counter.cycles", False),
    ],
)
def test_processor_time_is_known_by_its_name(metric: str, found: bool) -> None:
    assert is_processor_time(metric) == found


def test_a_clock_that_changes_half_way_is_seen() -> None:
    times = [100_000, 101_000, 100_500, 180_000] * 50 + [120_000, 121_000, 120_500, 190_000] * 50
    assert noise._clock(times) == pytest.approx(0.18, abs=0.01)
    assert noise._clock(times[:200] * 2) == 0
    assert noise._clock([5]) == 0


def test_the_spread_of_copies_is_of_the_middle_of_them() -> None:
    rate, spread = noise._memory([8, 9, *[10] * 7, 11, 400])
    assert rate == pytest.approx(2 * noise.COPIED_BYTES / 10e-9)
    assert spread == pytest.approx((11 - 9) / 2 / 10)
    assert noise._memory([]) == (None, None)


def test_this_machine_is_measured() -> None:
    found = noise.measure(Tree(), 0.05, 0.05)
    assert found.memory_bytes_per_s is not None
    assert 1e8 < found.memory_bytes_per_s < 1e13
    assert found.memory_spread is not None
    assert found.memory_spread >= 0
    assert 0 <= found.clock_fraction < 1


def test_no_advice_names_fewer_executions_than_can_tell() -> None:
    """A hypervisor that takes 1% scatters times so little that the formula alone says 1."""
    (one,) = judge(replace(QUIET, steal_fraction=0.011)).disturbances
    assert " this alone may need 6 executions " in one.advice
