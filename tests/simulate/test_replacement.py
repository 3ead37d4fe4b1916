"""Other policies at chosen sizes, samples, and threads."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from pagelab.errors import BadInputError
from pagelab.simulate.page_faults import paging
from pagelab.simulate.replacement_runs import POLICIES, replacement
from pagelab.simulate.sampling import SampleWarning, sampled_paging


def skewed(length: int = 200_000, pages: int = 20_000, seed: int = 0) -> NDArray[np.int64]:
    """A loop over some pages, and jumps of which near pages are likelier."""
    rng = np.random.default_rng(seed)
    loop = np.arange(length) % (pages // 4)
    jumps = (pages * rng.beta(0.6, 3.0, length)).astype(np.int64)
    return np.where(rng.random(length) < 0.5, loop, jumps)


def test_lru_at_one_size_is_lru_at_all_sizes() -> None:
    trace = skewed()
    one = replacement(trace, ["lru"], [64, 1024, 8192], [1, 4, 64])
    assert one.equals(paging(trace, [1, 4, 64], memory=[64, 1024, 8192]))


def test_opt_is_best_and_all_policies_fault_on_first_uses() -> None:
    trace = skewed()
    found = replacement(trace, POLICIES, [512, 4096, 1 << 20], [1, 8])
    for (memory,), part in found.group_by("memory_pages"):
        for (_,), policies in part.group_by("colours"):
            faults = dict(zip(policies["policy"], policies["faults"], strict=True))
            assert min(faults.values()) == faults["opt"]
            if memory == 1 << 20:
                assert set(faults.values()) == {len(np.unique(trace))}
            else:
                assert len(set(faults.values())) == len(POLICIES)


def test_random_replacement_repeats_with_its_seed() -> None:
    trace = skewed(50_000)
    first, again, other = (replacement(trace, ["random"], [512], seed=seed)["faults"][0] for seed in (1, 1, 2))
    assert first == again != other


def test_threads_count_the_same() -> None:
    trace = np.tile(skewed(), 12)
    assert paging(trace, [1, 2, 4], threads=2).equals(paging(trace, [1, 2, 4]))


def test_a_sample_of_everything_is_exact() -> None:
    trace = skewed(50_000)
    exact = paging(trace, [1, 4], memory=[256, 2048])
    sample = sampled_paging(trace, [256, 2048], [1, 4], rate=1.0)
    assert sample["faults"].to_list() == exact["faults"].to_list()


@pytest.mark.parametrize(
    ("how", "off_by"), [({"rate": 0.1}, 0.1), ({"most_pages": 4096}, 0.05)], ids=["fixed-rate", "fixed-size"]
)
def test_samples_are_near_and_tell_how_near(how: dict[str, float], off_by: float) -> None:
    """Over 200 seeds 92 to 99% of the errors were inside their 95% interval, and biases below half a percent."""
    trace = skewed(200_000, 40_000)
    memory = [2048, 8192, 16384]
    exact = paging(trace, [1], memory=memory)
    errors, relative = [], []
    for seed in range(40):
        sample = sampled_paging(trace, memory, [1], seed=seed, **how)  # type: ignore[arg-type]  # rate or pages
        both = sample.join(exact, on=["colours", "memory_pages"], suffix="_exact")
        off = both["faults_per_million"] - both["faults_per_million_exact"]
        errors.append((off / both["standard_error"]).to_list())
        relative.append((off / both["faults_per_million_exact"]).to_list())
    assert np.shape(errors) == (40, 3)
    # Student's t with 7 degrees of freedom: 95% lie within 2.365.
    assert np.mean(np.abs(errors) < 2.365) > 0.85
    assert np.all(np.sqrt(np.mean(np.square(relative), axis=0)) < off_by)
    assert np.all(np.abs(np.mean(relative, axis=0)) < off_by / 2)


def test_sizes_that_a_sample_says_nothing_about_are_left_out() -> None:
    with pytest.warns(SampleWarning, match="64 pages in 1 colours"):
        found = sampled_paging(skewed(), [64, 4096], [1, 64], rate=0.1)
    assert found.select("colours", "memory_pages").rows() == [(1, 4096)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policies": ["mru"]}, "mru: not known; allowed: lru, fifo, clock, random, opt"),
        ({"memory": [3]}, "no memory size is a multiple"),
        ({"colours": [5000], "memory": [5000]}, "5000 colours"),
        ({"trace": np.array([], int)}, "no references"),
        ({"memory": [3 << 30], "colours": [3]}, "in 3 colours: .* at most 3,221,225,469 pages; .*--memory"),
        ({"memory": [1 << 32], "colours": [1]}, "in 1 colours: .* at most 4,294,967,295 pages; .*--memory"),
    ],
)
def test_what_cannot_be_simulated_is_refused(change: dict[str, object], message: str) -> None:
    asked: dict[str, object] = {"trace": np.arange(9), "policies": ["fifo"], "memory": [4], "colours": [2], **change}
    with pytest.raises(BadInputError, match=message):
        replacement(**asked)  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize("how", [{}, {"rate": 0.0}, {"rate": 1.5}, {"most_pages": 3}])
def test_samples_that_cannot_be_are_refused(how: dict[str, float]) -> None:
    with pytest.raises(BadInputError):
        sampled_paging(np.arange(9), [4], **how)  # type: ignore[arg-type]  # that is the point


def test_frames_that_are_never_used_take_no_memory() -> None:
    """Regression: FIFO, CLOCK and random replacement took four bytes for each frame: 3 GiB here."""
    code = (
        "import numpy, pathlib, re\n"
        "from pagelab.simulate.replacement_runs import POLICIES, replacement\n"
        # Not ru_maxrss, which has the peak of the process that started this one.
        "status = pathlib.Path('/proc/self/status')\n"
        "peak_kib = lambda: int(re.search(r'VmHWM:\\s*(\\d+)', status.read_text())[1])\n"
        # The libraries' own memory, which differs between processors, is there after a first, small simulation.
        "replacement(numpy.arange(9000), POLICIES, [1 << 10], [1, 64])\n"
        "before_kib = peak_kib()\n"
        "found = replacement(numpy.arange(9000), POLICIES, [1 << 28], [1, 3, 64])\n"
        "print(found['faults'].to_list(), peak_kib() - before_kib >> 10)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    faults, grown_mib = done.stdout.rsplit(maxsplit=1)
    assert faults == str([9000] * 10)
    # Where the machine has huge pages, the first use of a list takes 2 MiB: 64 lists of three policies, 384 MiB.
    assert int(grown_mib) < 450


def test_frames_have_the_same_columns() -> None:
    one, all_ = replacement(np.arange(9), ["fifo"], [4]), paging(np.arange(9), [1])
    assert isinstance(one, pl.DataFrame)
    assert one.schema == all_.schema
