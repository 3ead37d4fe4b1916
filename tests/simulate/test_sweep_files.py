"""The file of a sweep: what it means, what is wrong with it, and that examples are whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pagelab.simulate
from harness.sweeping import HISTORY, cli, written
from pagelab import trace
from pagelab.errors import BadInputError
from pagelab.simulate.sweeping.run import planned, sweep


def test_a_dry_run_says_what_would_be_done_and_does_nothing(here: Path) -> None:
    said = cli(written(here), "--out", here / "out", "--dry-run")
    assert said.returncode == 0, said.stderr
    assert said.stdout.splitlines()[:4] == [
        "all: 2 traces, 6 configurations, 18 tasks; done already: 0",
        "  one, paging lru",
        "  one, paging random, seed 0",
        "  one, paging random, seed 1",
    ]
    assert "  two, cache small kernel memory=64M, seed 1" in said.stdout.splitlines()
    assert not (here / "out").exists()


def test_the_same_from_python(here: Path) -> None:
    table = {"hierarchy": str(here / "small.toml"), "frames": "random", "memory": "64M"}
    done = sweep({"traces": [str(here / "one.trace")], "seeds": [7], "cache": [table]}, here / "out", processes=0)
    runs = pagelab.simulate.cache(here / "one.trace", here / "small.toml", "random", seeds=[7], history=HISTORY)
    assert done.frame().filter(level="L2")["misses"].to_list() == runs.executions["misses.L2"].to_list()


MISTAKES = [
    ("seeds = 2\n", "there is nothing to simulate: write [[paging]], [[cache]] or [[tlb]] tables"),
    ("[[cache]]\nhierarchy = 'small.toml'", 'there are no traces: write traces = ["*.trace"]'),
    ("traces = ['*.trace']\n[[cache]]\nhierarchy = 'zen-9'", "all.toml:2: cache[0]: no processor is called zen-9"),
    ("traces = ['*.trace']\n[[cache]]\nframes = 'kernel'", "all.toml:2: cache[0].hierarchy: missing"),
    ("traces = ['*.trace']\n[[tlb]]\nprocessor = 'pentium-4'", "pentium-4: the description has no table [tlb]"),
    (
        "traces = ['*.trace']\n[[paging]]\ncolours = 4",
        "all.toml:3: paging[0].colours: unknown key; did you mean colors? Allowed: coloring",
    ),
    (
        "traces = ['*.trace']\n[[paging]]\npolicies = ['mru']",
        "all.toml:3: paging[0].policies[0]: Input should be 'lru'",
    ),
    ("traces = ['*.trace']\n[[paging]]\nmemory = '4X'", "all.toml:3: paging[0].memory"),
    ("traces = ['*.trace']\n[[paging]]\npolicies = 'opt'\nmemory = 'all'", 'memory = "all" needs policies = ["lru"]'),
    (
        "traces = ['*.trace']\n[[paging]]\nmemory = '12K'\ncolors = 8",
        "all.toml:2: paging[0]: colors 8: 8 colours divide none of the memories of memory 12K",
    ),
    (
        "traces = ['*.trace']\n[[paging]]\nmemory = ['4M', '3M']\npage_size = ['4K', '2M']\ncolors = 1",
        "all.toml:2: paging[0]: memory 3M: 3145728 bytes are no whole number of pages of 2097152; the next that is: "
        "memory 4M",
    ),
    ("traces = ['*.trace']\n[[paging]]\n[[paging]]\ncolors = 8", "all.toml:3: paging[1]: a configuration of paging[0]"),
    ("traces = ['*.trace']\n[[cache]]\nhierarchy = 'zen-3'\nused = 0.9", "at most 0.95 and 1 together"),
    ("traces = ['*.trace']\n[[cache]]\nhierarchy = 'zen-3'\nframes = 'colour'", "allowed:"),
    ("traces = ['*.trace', 'no.trace']\n[[paging]]", "no.trace: "),
    ("traces = ['*.toml']\n[[paging]]", "not a pagelab trace"),
    ("traces = ['*.runs']\n[[cache]]\nhierarchy = 'zen-3'", "has page runs only, and cache needs every reference"),
    (
        "traces = ['*.runs']\n[[paging]]\npage_size = ['64K', '1K']",
        'runs of pages of 4K, and page_size = "1K" is smaller',
    ),
    ("traces = ['*.trace']\nseeds_per_task = true\n[[paging]]", "all.toml:2: seeds_per_task: Input should be a valid"),
    (
        "traces = ['*.trace']\n[[paging]]\nsample = '0.5'",
        "all.toml:3: paging[0].sample: Input should be a valid number",
    ),
    ("traces = ['*.torn']\n[[paging]]", "pagelab trace convert --recover"),
    ("seeds = 2\nseeds = 3\n", "all.toml:2: not TOML"),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES, ids=[message[:40] for _, message in MISTAKES])
def test_mistakes_are_told_before_anything_is_simulated(here: Path, text: str, message: str) -> None:
    trace.write(here / "a.runs", [np.arange(10)], page_bytes=4096)
    whole = (here / "one.trace").read_bytes()
    (here / "a.torn").write_bytes(whole[: len(whole) * 2 // 3])
    with pytest.raises(BadInputError) as caught:
        sweep(written(here, text), here / "out", processes=0)
    assert message in str(caught.value)
    assert not (here / "out").exists()


ROOT = Path(__file__).parents[2]


def test_the_examples_and_that_of_the_documentation_are_whole(here: Path) -> None:
    document = (ROOT / "docs" / "simulate-sweep.md").read_text()
    shown = document.split("```toml\n")[1].split("```")[0]
    made, _ = planned(written(here, shown), here / "out")
    assert {one.simulator for one in made.configurations} == {"paging", "cache", "tlb"}
    (here / "traces").mkdir()
    (here / "one.trace").rename(here / "traces" / "one.trace")
    tasks = {"colours": (2 + 5) + 4 * 2, "page-sizes": 3 + 3}
    assert {path.stem for path in (ROOT / "examples" / "sweeps").iterdir()} == set(tasks)
    for name, count in tasks.items():
        example = (ROOT / "examples" / "sweeps" / f"{name}.toml").read_text()
        assert len(planned(written(here, example), here / "out")[0].tasks) == count


def test_the_documented_reading_of_a_dataset_works(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep(written(here), here / "colours.sweep", processes=0)
    monkeypatch.chdir(here)
    shown = (ROOT / "docs" / "simulate-sweep.md").read_text().split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {}
    exec(shown, names)
    assert sorted(names["spread"].columns) == ["configuration", "cv", "mean", "trace"]
    assert len(names["spread"]) == 4
    assert names["spread"]["mean"].null_count() == 0


def test_every_key_is_documented() -> None:
    from pagelab.simulate.sweeping.spec import RawCache, RawPaging, RawSweep, RawTlb

    document = (ROOT / "docs" / "simulate-sweep.md").read_text()
    for model in (RawSweep, RawPaging, RawCache, RawTlb):
        for key in model.model_fields:
            assert f"`{key}`" in document or f"[[{key}]]" in document, f"{key} of {model.__name__}"
