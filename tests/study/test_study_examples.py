"""What the repository offers as examples, and what the documentation says, is accepted as it stands."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from pagelab import machine
from pagelab.study.feasible import cannot
from pagelab.study.planning import plan_file, plan_text

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "studies").rglob("*.toml"))
DOCUMENT = (ROOT / "docs" / "study.md").read_text()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_plan(path: Path, tmp_path: Path) -> None:
    plan = plan_file(path, tmp_path)
    assert plan.executions >= 10
    assert plan.question
    described = machine.describe()
    for condition in plan.conditions:
        cannot(condition, described)  # raises for a policy that no machine could do


@pytest.mark.parametrize("name", ["prepaging", "write-through"])
def test_examples_set_up_in_a_directory_with_a_blank(name: str, tmp_path: Path) -> None:
    """Regression: the shell saw two words."""
    out = tmp_path / "My Documents" / "a 'quoted' study"
    out.mkdir(parents=True)
    (out / "scan.dat").write_text("made before, so that no large file is written here")
    for step in plan_file(ROOT / "studies" / f"{name}.toml", out).setup:
        done = subprocess.run(step.argv, cwd=step.cwd, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
    assert [path.name for path in tmp_path.rglob("tree.tar")] == (["tree.tar"] if name == "write-through" else [])


def test_the_shortest_study_of_the_documentation_is_whole(tmp_path: Path) -> None:
    (shortest,) = re.findall(r"## The shortest study\n\n```toml\n(.*?)```", DOCUMENT, re.DOTALL)
    plan = plan_text(shortest, tmp_path / "study.toml", tmp_path / "out")
    assert [condition.name for condition in plan.conditions] == ["sort/kernel", "sort/2M"]
    assert (plan.executions, plan.warmups, plan.baseline) == (20, 1, "kernel")


def test_every_key_of_the_language_is_documented() -> None:
    from pagelab.study.spec import RawPolicy, RawStudy, RawWorkload

    for model in (RawStudy, RawWorkload, RawPolicy):
        for key in model.model_fields:
            assert re.search(rf"`[^`\n]*\b{key}\b[^`\n]*`|\[\[{key}\]\]", DOCUMENT), f"{key} of {model.__name__}"
