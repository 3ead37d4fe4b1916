"""``doctor --probe-colours``: each verdict on invented caches, the rule's error rate, and where verdicts are kept."""

from __future__ import annotations

import json
import os
import random
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from fake_cache import MACHINE, FakeCache, scattered
from hypothesis import given, settings
from hypothesis import strategies as st

from pagelab import machine, paths
from pagelab.errors import MachineError
from pagelab.machine import probe_colours
from pagelab.machine.colours import colour_warnings, masks, rule
from pagelab.machine.colours.model import Chase, Ratio, Sample, Verdict, VerdictFile
from pagelab.machine.colours.store import store, stored
from pagelab.machine.probe_colours import arguments, caches, probe
from pagelab.machine.sysfs import Tree
from pagelab.study.launching import colours_now
from pagelab.study.plan import Plan
from pagelab.study.prepare import prepare

HASH = (0x8, 0x42, 0x10084, 0x21001, 0x100210)


def low_bits(frame: int, colours: int) -> int:
    return frame % colours


def hashed(frame: int, colours: int) -> int:
    return masks.colour(HASH, frame) if colours == 32 else scattered(frame) % colours


def no_function(frame: int, colours: int) -> int:
    return scattered(frame) % colours


def run(cache: FakeCache, virtual: str = "none", rounds: int = 30) -> VerdictFile:
    return probe(rounds=rounds, measure=cache, machine=MACHINE, virtual=virtual)


def test_frames_that_reach_the_caches_are_effective() -> None:
    found = run(FakeCache(low_bits))
    assert found.verdict is Verdict.EFFECTIVE
    assert [cache.verdict for cache in found.caches] == [Verdict.EFFECTIVE, Verdict.EFFECTIVE]


def test_a_guest_whose_host_scatters_frames_is_not_effective() -> None:
    found = run(FakeCache(no_function), virtual="kvm")
    assert [cache.verdict for cache in found.caches] == [Verdict.SCATTERED, Verdict.SCATTERED]
    assert found.caches[0].classes == 3


def test_a_hashed_index_is_recognised_and_its_masks_are_found() -> None:
    cache = FakeCache(hashed, mistaken=0.02)
    found = run(cache, virtual="kvm")
    first = found.caches[0]
    assert first.verdict is Verdict.HASHED
    assert sorted(int(mask, 16) for mask in first.masks) == sorted(HASH)
    assert [call.get("masks") is not None for call in cache.calls] == [False, True, False], "the masks are tried out"
    assert found.caches[1].verdict is Verdict.HASHED, "the next cache hashes, too, with masks that are not known"
    assert not found.caches[1].masks


def test_no_function_of_the_frame_on_a_machine_of_ones_own_is_a_hash_too() -> None:
    found = run(FakeCache(no_function), virtual="none")
    assert found.caches[0].verdict is Verdict.HASHED
    assert not found.caches[0].masks


def test_a_last_level_that_hashes_is_told_from_an_effective_second_level() -> None:
    found = run(FakeCache(lambda frame, colours: frame % 32 if colours == 32 else scattered(frame) % colours))
    assert [cache.verdict for cache in found.caches] == [Verdict.EFFECTIVE, Verdict.HASHED]
    assert found.verdict is Verdict.EFFECTIVE


def test_without_a_conflict_to_compare_with_nothing_is_concluded() -> None:
    found = run(FakeCache(no_function, finds_conflicts=False), virtual="kvm")
    assert [cache.verdict for cache in found.caches] == [Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE]
    assert "no pages that do conflict were found" in found.caches[0].reason


def test_a_noisy_machine_is_inconclusive() -> None:
    found = run(FakeCache(no_function, noise=1.5), virtual="kvm", rounds=12)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "--rounds" in found.caches[0].reason


def test_too_few_rounds_for_an_interval_are_inconclusive() -> None:
    found = run(FakeCache(low_bits), rounds=4)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.caches[0].ratios[0].low is None


def test_masks_that_change_nothing_are_not_given() -> None:
    """Classes can follow XORs of bits by an accident of timing: the chains under the masks decide."""
    judged = rule.Judged(Verdict.HASHED, "because", (0x21,))
    alike = [ratio("same", 16, "no", 0.99, 1.01), ratio("same", 4, "yes", 0.99, 1.01)]
    assert rule.confirmed(judged, alike, virtual=True) == rule.Judged(
        Verdict.SCATTERED, "because, but chains of one colour under these masks are no slower"
    )
    slower = [ratio("same", 16, "no", 1.9, 2.1), ratio("same", 4, "yes", 0.99, 1.01)]
    assert rule.confirmed(judged, slower, virtual=True).masks == (0x21,)


def ratio(
    kind: Literal["same", "conflict"], pages: int, fits: Literal["yes", "just", "no"], low: float, high: float
) -> Ratio:
    return Ratio(
        kind=kind, chain_pages=pages, fits=fits, median=(low + high) / 2, low=low, high=high, level=0.95, rounds=30,
        ns_per_load=4.0, spread_ns_per_load=4.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("conflicting", "fitting", "answer"),
    [
        ([(1.2, 1.4), (1.5, 1.9)], (0.98, 1.02), "slower"),
        ([(1.2, 1.4), (1.05, 1.9)], (0.98, 1.02), "unclear"),
        ([(1.2, 1.4), (1.5, 1.9)], (1.2, 1.4), "unclear"),
        ([(0.99, 1.01), (0.95, 1.09)], (0.98, 1.02), "alike"),
        ([(0.99, 1.01), (0.95, 1.11)], (0.98, 1.02), "unclear"),
        ([], (0.98, 1.02), "unclear"),
    ],
)
def test_all_lengths_must_agree(
    conflicting: list[tuple[float, float]], fitting: tuple[float, float], answer: str
) -> None:
    found = [ratio("same", 16 + i, "no", *bounds) for i, bounds in enumerate(conflicting)]
    assert rule.compare([*found, ratio("same", 4, "yes", *fitting)], "same") == answer


@pytest.mark.parametrize("shape", ["normal", "heavy tails", "drift", "two speeds"])
def test_an_effect_is_seldom_claimed_where_there_is_none(shape: str) -> None:
    """Simulated: same and spread chains are drawn alike; a false ``slower`` may come in at most 5% of measurements.

    The bound holds by the rule's own test (no effect, whatever the size): so the threshold is taken away here.
    """
    rng = np.random.default_rng(7)
    rounds, false, tries = 30, 0, 1000
    for _ in range(tries):
        pair = np.exp(rng.normal(0, 0.05, (rounds, 2)))
        if shape == "heavy tails":
            pair *= np.exp(np.abs(rng.standard_cauchy((rounds, 2))).clip(0, 8) * 0.2)
        elif shape == "drift":
            pair *= np.exp(np.cumsum(rng.normal(0, 0.3, rounds)))[:, None]
        elif shape == "two speeds":
            pair *= np.where(rng.random((rounds, 2)) < 0.5, 1.0, 2.5)
        # One length: several, all of which must agree, can only make it rarer.
        samples = [
            Sample(round=i, chain_pages=16, kind=kind, ns_per_load=float(pair[i, k]))
            for i in range(rounds)
            for k, kind in ((0, "same"), (1, "spread"))
        ]
        (found,) = rule.ratios(chase(samples))
        assert found.low is not None
        assert found.high is not None
        false += found.low > 1.0
    # 2.5% a side: 1000 tries have more than 5% with a probability below 1e-5.
    assert false <= 0.05 * tries, f"{false} of {tries}"


def test_an_effect_just_below_the_threshold_is_not_called_effective_too_often() -> None:
    rng = np.random.default_rng(8)
    verdicts = []
    for _ in range(500):
        samples = [
            Sample(round=i, chain_pages=16, kind=kind, ns_per_load=float(factor * np.exp(rng.normal(0, 0.05))))
            for i in range(30)
            for kind, factor in (("same", rule.EFFECT), ("spread", 1.0))
        ]
        verdicts.append(rule.compare(rule.ratios(chase(samples)), "same"))
    assert verdicts.count("slower") <= 0.05 * len(verdicts)


def chase(samples: list[Sample]) -> Chase:
    return Chase(
        colours=32, ways=8, inner_colours=1, inner_ways=8, masks=[], rounds=30, seed=1, pool_pages=0, candidates=[],
        near_ns=0, far_ns=0, attempts=0, classes=[], samples=samples,
    )  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 6))
def test_masks_are_found_whatever_linear_index_made_the_classes(seed: int, bits: int) -> None:
    rng = random.Random(seed)
    true = []
    while len(true) < bits:
        mask = rng.getrandbits(20)
        if len(masks._basis([*true, mask])) > len(true):
            true.append(mask)
    candidates = rng.sample(range(1 << 20), 128 << bits)
    by_colour: dict[int, list[int]] = {}
    for frame in candidates:
        by_colour.setdefault(masks.colour(true, frame), []).append(frame)
    classes = rng.sample(list(by_colour.values()), min(3, len(by_colour)))
    found = masks.explaining(classes, candidates)
    assert len(masks._basis([*found, *true])) == len(found) == bits, "another basis of the same masks"


def test_pages_taken_at_random_follow_no_masks() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        candidates = rng.sample(range(1 << 22), 4096)
        assert masks.explaining([rng.sample(candidates, 128) for _ in range(3)], candidates) == []


def test_too_few_pages_tell_no_masks() -> None:
    candidates = list(range(0, 1 << 14, 3))
    assert masks.explaining([[32 * i for i in range(10)]], candidates) == []


def test_lengths_lie_below_at_and_above_the_ways_and_the_pool_is_bounded() -> None:
    first, second = caches(MACHINE)
    assert (first.level, first.inner_colours, first.inner_ways) == (2, 1, 8)
    assert (second.level, second.inner_colours, second.inner_ways) == (3, 32, 8)
    words = arguments(second, rounds=30, seed=1, available_bytes=1 << 24, classes=3)
    named = dict(word.removeprefix("--").split("=") for word in words)
    assert named["chain-pages"] == "8,16,32,48,64"
    assert int(named["pool-pages"]) * 4096 <= 1 << 22
    assert int(named["candidates"]) <= int(named["pool-pages"])


def test_a_machine_that_tells_no_caches_is_refused() -> None:
    with pytest.raises(MachineError, match="reports no cache with more than one colour"):
        probe(machine={"caches": [{"level": 2, "kind": "unified", "ways": None, "colours": None}]}, virtual="none")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PAGELAB_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def test_a_stored_verdict_is_part_of_the_machine_description(state: Path) -> None:
    assert machine.describe()["colour_verdict"] is None
    found = run(FakeCache(no_function), virtual="kvm").model_copy(update={"caches": []})
    path = store(found)
    assert path == state / "colours.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644, "every user may read it"
    described = machine.describe()["colour_verdict"]
    assert described["verdict"] == Verdict.SCATTERED
    assert described["measured_at"] == found.measured_at


def test_a_verdict_holds_for_its_machine_caches_and_boot_only(state: Path) -> None:
    found = run(FakeCache(no_function), virtual="kvm")
    same = [{"level": one.level, "size_bytes": one.size_bytes, "ways": one.ways} for one in found.caches]
    store(found)
    assert stored(same) is not None
    other = [{**same[0], "ways": 12}, same[1]]
    assert stored(other) is None, "another cache"
    store(found.model_copy(update={"machine": "0" * 16}))
    assert stored(same) is None, "another machine"
    store(found.model_copy(update={"boot_id": "earlier"}))
    assert stored(same) is None, "a guest's host may lay out its memory anew"
    store(found.model_copy(update={"boot_id": "earlier", "virtualisation": "none"}))
    assert stored(same) is not None
    (state / "colours.json").write_text("{")
    assert stored(same) is None, "a file that cannot be read is measured anew"


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "pagelab.colours/2"},
        {"verdict": None},
        {"caches": None},
        {"caches": [3]},
        {"caches": [{}]},
        {"measured_at": 7},
    ],
)
@pytest.mark.usefixtures("state")
def test_a_verdict_of_another_form_is_measured_anew(change: dict[str, Any]) -> None:
    found = run(FakeCache(no_function), virtual="none")
    path = store(found)
    same = [{"level": one.level, "size_bytes": one.size_bytes, "ways": one.ways} for one in found.caches]
    assert stored(same) is not None
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert stored(same) is None
    path.write_text("[]")
    assert stored(same) is None


@pytest.mark.usefixtures("state")
def test_an_invented_machine_has_not_this_ones_verdict(tmp_path: Path) -> None:
    store(run(FakeCache(low_bits)).model_copy(update={"caches": []}))
    assert machine.describe()["colour_verdict"] is not None
    (tmp_path / "other").mkdir()
    assert machine.describe(Tree(tmp_path / "other"))["colour_verdict"] is None


FRAMES = 'name = "c"\nframes = "page-coloring"\n'


@pytest.mark.parametrize(
    ("toml", "governs"),
    [
        ('name = "k"\n', False),
        ('frames = "kernel"\npages = "2M"\n', False),
        (FRAMES, True),
        ('[[rule]]\nmemory = ["heap"]\nframes = { random = { seed = 1 } }\n', True),
        ('[[rule]]\nmemory = ["heap"]\npages = "2M"\n', False),
    ],
)
def test_policies_with_frames_are_recognised(toml: str, governs: bool) -> None:
    assert colour_warnings.governs_frames(toml) is governs


def test_a_run_of_a_frame_policy_carries_the_verdict() -> None:
    (warning,) = colour_warnings.warnings(FRAMES, {"colour_verdict": None})
    assert (warning.kind, warning.severity) == ("colours-not-probed", "warning")
    assert "sudo pagelab doctor --probe-colours" in warning.message
    told = {"verdict": Verdict.SCATTERED.value, "measured_at": "2026-01-02T03:04:05+00:00", "caches": []}
    (warning,) = colour_warnings.warnings(FRAMES, {"colour_verdict": told})
    assert (warning.kind, warning.severity) == ("colours-without-effect", "info")
    assert "no effect of colours can be expected (measured 2026-01-02)" in warning.message
    assert colour_warnings.warnings(FRAMES, {"colour_verdict": {**told, "verdict": "effective"}}) == []
    assert colour_warnings.warnings('pages = "2M"\n', {"colour_verdict": None}) == []


def test_masks_are_told_as_a_policy_takes_them() -> None:
    cache = {"level": 2, "colours": 4, "verdict": Verdict.HASHED.value, "reason": "", "masks": ["0x21", "0x42"]}
    told = {"verdict": Verdict.HASHED.value, "measured_at": "2026-01-02T03:04:05+00:00", "caches": [cache]}
    assert 'L2: masks = ["0x21", "0x42"]' in colour_warnings.sentence(told)


def pagelab(*arguments: str, state: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pagelab", "doctor", *arguments],
        env=os.environ | {"PAGELAB_STATE_DIR": str(state)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="frame numbers need root; run: sudo make test")
def test_this_machine_is_measured_and_the_verdict_kept(state: Path) -> None:
    if not caches(machine.describe()):
        pytest.skip("the kernel reports no caches here; on a machine where it does, run: make test")
    done = pagelab("--probe-colours", "--rounds", "12", "--json", state=state)
    assert done.returncode == 0, done.stderr
    found = VerdictFile.model_validate_json(done.stdout)
    assert {one.kind for one in found.caches[0].ratios} <= {"same", "conflict"}
    assert all(one.rounds == 12 for cache in found.caches for one in cache.ratios if one.kind == "same")
    kept = json.loads((state / "colours.json").read_text())
    assert kept["verdict"] == found.verdict
    shown = pagelab("--no-noise", "--json", state=state)
    (line,) = [one for one in json.loads(shown.stdout)["probes"] if one["name"] == "colours"]
    assert line["text"].startswith(found.verdict)


def test_who_sees_no_frame_numbers_is_told_the_command(state: Path) -> None:
    if os.geteuid() == 0:
        program = (
            f"import os\nos.setgroups([]); os.setgid(65534); os.setuid(65534)\nos.execv({str(paths.workload())!r}, "
        )
        program += "['w', 'colour-chase', '--colours=2', '--ways=2', '--chain-pages=2', '--pool-pages=64', "
        program += "'--candidates=2', '--rounds=1'])"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    else:
        done = pagelab("--probe-colours", state=state)
    assert done.returncode in (2, 3)
    assert "sudo pagelab doctor --probe-colours" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rounds", "50"], "--rounds goes with --probe-colours or --probe-translation only"),
        (["--probe-colours", "--rounds", "3"], "allowed: 10 to 10000"),
        (["--probe-colours", "--restore"], "do not go together"),
    ],
)
def test_what_the_command_line_refuses(arguments: list[str], words: str, state: Path) -> None:
    done = pagelab(*arguments, state=state)
    assert done.returncode == 2
    assert words in done.stderr


def test_a_study_that_places_frames_measures_colours_first_and_once(
    state: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls = []

    def probed() -> VerdictFile:
        calls.append(1)
        return run(FakeCache(no_function), virtual="kvm").model_copy(update={"caches": []})

    monkeypatch.setattr(probe_colours, "probe", probed)
    kernel, coloured = (plan_of(tmp_path, frames) for frames in ("kernel", "page-coloring"))
    assert colours_now(kernel) is None
    assert not calls, "nothing places frames"
    told = colours_now(coloured)
    assert told is not None
    assert told.startswith("this machine's caches do not follow frame numbers")
    assert (state / "colours.json").exists()
    assert colours_now(coloured) is None
    assert len(calls) == 1, "the verdict of this boot is known"


def test_a_study_goes_on_where_colours_cannot_be_measured(
    state: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused() -> VerdictFile:
        raise MachineError("cannot probe colours: frame numbers are hidden")

    monkeypatch.setattr(probe_colours, "probe", refused)
    told = colours_now(plan_of(tmp_path, "page-coloring"))
    assert told is not None
    assert told.startswith("warning: whether frame numbers reach this machine's caches was not measured: cannot probe")
    assert not state.exists()


def plan_of(directory: Path, frames: str) -> Plan:
    """A study of one program under the kernel's own frames and under ``frames``."""
    directory.joinpath("s.toml").write_text(
        'name = "s"\nexecutions = 6\n[[workload]]\nname = "w"\ncommand = ["true"]\n[[policy]]\nname = "a"\n'
        f'[[policy]]\nname = "b"\nframes = "{frames}"\n'
    )
    return prepare(directory / "s.toml", directory / "out", lambda _condition: None).plan
