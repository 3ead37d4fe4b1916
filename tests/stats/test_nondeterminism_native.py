"""The native loops against a naive second implementation, draw by draw; threads, batches and interruption."""

from __future__ import annotations

import signal
import subprocess
import sys

import nondeterminism_reference as naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagelab import _native
from pagelab.stats.nondeterminism import Executions, Experiment, Resampling, characterize
from pagelab.stats.nondeterminism.table import columns

CLOSE = 1e-11
"""Both sum in doubles, in different orders."""


def _ragged(draw: st.DrawFn, fewest: int) -> list[list[float]]:
    time = st.one_of(st.sampled_from([1.0, 1.5, 2.0]), st.floats(0.5, 2.0), st.floats(1e-3, 1e3))
    rows = st.lists(st.lists(time, min_size=fewest, max_size=9), min_size=3, max_size=8)
    return draw(rows)


@st.composite
def ragged(draw: st.DrawFn) -> list[list[float]]:
    return _ragged(draw, 3)


@settings(max_examples=15, deadline=None)
@given(rows=ragged(), seed=st.integers(0, 2**64 - 1), key=st.integers(0, 2**64 - 1), data=st.data())
def test_whole_rows_are_those_of_the_reference(
    rows: list[list[float]], seed: int, key: int, data: st.DataObject
) -> None:
    size = data.draw(st.integers(3, min(len(rows), min(map(len, rows)))))
    chosen = Resampling(seed=seed, estimate_draws=100)
    found = columns([Executions.of(rows)], np.array([size], dtype=np.uint64), [key], chosen)

    def check(expected: dict[str, float]) -> None:
        for name, value in expected.items():
            assert found[name][0] == pytest.approx(value, rel=1e-9, abs=1e-13), name

    check(dict(zip(("mean", "within", "pooled"), naive.levels(rows), strict=True)))
    for name, draw in (("impact", naive.impact), ("null_impact", naive.impact_null)):
        drawn = draw(rows, size, seed, key, 100)
        if drawn is None:
            assert np.isnan(found[name][0])
        else:
            log = "log_impact" if name == "impact" else "null_log_impact"
            check({name: drawn.mean, log: drawn.log_mean})


@settings(max_examples=60, deadline=None)
@given(rows=st.integers(3, 8).flatmap(lambda n: st.lists(st.integers(2, 9), min_size=n, max_size=n)), data=st.data())
def test_standard_errors_are_those_of_the_reference(rows: list[int], data: st.DataObject) -> None:
    """Leave out each execution in turn, and compute everything anew."""
    random = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    between = data.draw(st.sampled_from([0.0, 0.02, 0.3]))
    times = [(random.lognormal(0, between) * random.lognormal(0, 0.05, count)).tolist() for count in rows]
    found = columns([Executions.of(times)], np.array([2], dtype=np.uint64), [1], Resampling(seed=1, estimate_draws=100))
    for name, (shift, error) in (("pooled", naive.pooled_error(times)), ("impact", naive.impact_error(times))):
        assert found[f"{name}_shift"][0] == pytest.approx(shift, rel=1e-9), name
        assert found[f"{name}_error"][0] == pytest.approx(error, rel=1e-6), name
    cvs = [np.std(row, ddof=1) / np.mean(row) for row in times]
    expected = np.std(cvs, ddof=1) / np.sqrt(len(cvs)) / np.mean(cvs)
    assert found["within_error"][0] == pytest.approx(expected, rel=1e-9)


def _experiments(count: int) -> list[Experiment]:
    random = np.random.default_rng(8)
    return [
        Experiment(f"g{i // 3}", f"c{i % 3}", Executions.of(random.lognormal(0, 0.2, (5 + i % 4, 4 + i % 5))))
        for i in range(count)
    ]


def test_digits_depend_on_seed_and_names_only() -> None:
    experiments = _experiments(12)
    settings = [Resampling(seed=4, threads=threads) for threads in (1, 2, 5)]
    one, two, five = (characterize(experiments, each).columns for each in settings)
    fewer = characterize(experiments[3:9], settings[0]).columns
    other = characterize(experiments, Resampling(seed=5)).columns
    for name in one:
        np.testing.assert_array_equal(one[name], two[name])
        np.testing.assert_array_equal(one[name], five[name])
        np.testing.assert_array_equal(one[name][3:9], fewer[name])
    assert (one["impact"] != other["impact"]).all()
    assert (one["mean"] == other["mean"]).all()


def test_the_same_data_under_another_name_has_its_own_draws() -> None:
    data = _experiments(1)[0].executions
    table = characterize([Experiment("a", "x", data), Experiment("a", "y", data)], Resampling(seed=1))
    impact = table.columns["impact"]
    assert impact[0] != impact[1]
    assert impact[0] == pytest.approx(impact[1], rel=0.05)


@pytest.mark.parametrize(
    ("ends", "experiment_ends", "group"),
    [([2, 1, 4], [3], 0), ([2, 4], [2], 3), ([2, 4], [2], 1), ([2, 5], [2], 0), ([2, 4], [1], 0), ([2, 4], [2, 2], 0)],
)
def test_arrays_that_do_not_fit_are_refused(ends: list[int], experiment_ends: list[int], group: int) -> None:
    words = [np.array(each, dtype=np.uint64) for each in (ends, experiment_ends)]
    count = len(experiment_ends)
    with pytest.raises(ValueError, match=r"experiment|group"):
        _native.stats_reports(
            np.arange(1.0, 5.0),
            *words,
            np.full(count, group, dtype=np.uint64),
            np.zeros(count, dtype=np.uint64),
            seed=0,
            estimate_draws=100,
            null_draws=100,
            threads=1,
        )


INTERRUPTED = """
import os, signal, sys, threading
import numpy as np
from pagelab.stats.nondeterminism import Executions, Experiment, Resampling, characterize
data = Executions.of(1 + np.random.default_rng(1).random((50, 50)))
# Ctrl-C as soon as the loops can have begun, and again until it is heard: once.
def hear(*_):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt
signal.signal(signal.SIGINT, hear)
def press():
    os.kill(os.getpid(), signal.SIGINT)
    timer = threading.Timer(0.2, press); timer.daemon = True; timer.start()
threading.Timer(0.2, press).start()
try:
    many = [Experiment(str(i), "c", data) for i in range(2_000)]
    characterize(many, Resampling(seed=1, estimate_draws=1_000_000))
except KeyboardInterrupt:
    print("interrupted", flush=True)
    os._exit(0)
"""


def test_ctrl_c_ends_the_loops() -> None:
    """Unheard, the analysis would go on for hours, beyond this test's time limit."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("interrupted\n", 0), done.stderr
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
