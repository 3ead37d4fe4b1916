"""The section that says how to have 2 MiB pages without pagelab, and only where they were worth it."""

from __future__ import annotations

from pathlib import Path

import factory
import pytest
from factory import Run, data_of

from pagelab.analysis import Analysis, analyse
from pagelab.report.outside import outside


def study(directory: Path, change: float, toml: str = 'name = "2M"\npages = "2M"\n') -> Analysis:
    plan = factory.plan(["w"], ["kernel", "2M"], 12)
    changed = [c.asking(policy_toml=toml) if c.policy == "2M" else c for c in plan.conditions]
    made = factory.store(
        directory / "study",
        plan.model_copy(update={"conditions": changed}),
        lambda c, s: Run(
            wall_s=(1 + change * (c.policy == "2M")) * (1 + 0.001 * (s.execution * 5 % 8)),
            peak_bytes=round((1 + 0.25 * (c.policy == "2M")) * (64 << 20)),
        ),
    )
    return analyse(data_of(made))


def test_what_was_faster_can_be_had_outside_at_its_cost(tmp_path: Path) -> None:
    found = outside(study(tmp_path, -0.3))
    assert found is not None
    assert found.sentences[0].startswith("What made w faster can be had without pagelab.")
    assert found.sentences[1].endswith("at their peak w took 25.0% more.")
    assert any("glibc.malloc.hugetlb=1" in how for _, how, _ in found.ways.rows)


@pytest.mark.parametrize(
    ("change", "toml"),
    [
        (0.3, 'name = "2M"\npages = "2M"\n'),  # slower
        (0.0, 'name = "2M"\npages = "2M"\n'),
        (-0.3, 'name = "2M"\npages = { mosaic = [["0", "64M", "2M"]], otherwise = "4K" }\n'),  # no way outside
        (-0.3, 'name = "2M"\npages = "2M"\nframes = "random"\n'),
        (-0.3, 'name = "2M"\nfetch = "prefault"\n'),
    ],
)
def test_elsewhere_nothing_is_said(tmp_path: Path, change: float, toml: str) -> None:
    assert outside(study(tmp_path, change, toml)) is None
