"""Studies whose tests could not succeed: everything is described, nothing is tested, and the page says so."""

from __future__ import annotations

import re
from pathlib import Path

import factory
from factory import Run, data_of, separated

from pagelab.analysis import Analysis, analyse
from pagelab.analysis.following import following_of
from pagelab.report import charts, tables, write_report
from pagelab.report.figures import figures_of
from pagelab.study.plan import Condition, Plan
from pagelab.study.schedule import Slot


def in_pairs(workloads: list[str], executions: int, **changes: object) -> Plan:
    """A plan that is described."""
    plan = factory.plan(workloads, ["a", "b"], executions)
    return plan.model_copy(update={"test": "pairs", "tested": False, **changes})


def five(directory: Path) -> Analysis:
    """Five pairs: half as long under b in all of them, as clear as can be."""
    return factory.study(directory, in_pairs(["w"], 5), separated(5, 1.0, 2.0))


def test_no_p_and_no_verdict(tmp_path: Path) -> None:
    found = five(tmp_path)
    (contrast,) = found.compared()
    assert found.planned() == ()
    assert (contrast.p, contrast.p_holm, contrast.verdict) == (None, None, "descriptive")
    assert found.headline == (
        "w under b against a: −50.0% (5 pairs), not tested: 5 executions of each are too few for a test."
    )
    assert found.answers == ("w, b: wall time −50.0% against a.",)


def test_the_greatest_of_several_changes_is_told(tmp_path: Path) -> None:
    times = {"w/a": [2.0] * 6, "w/b": [1.9] * 6, "x/a": [1.0] * 6, "x/b": [1.5] * 6}
    found = factory.study(tmp_path, in_pairs(["w", "x"], 6), times)
    assert found.headline.startswith("x under b against a: +50.0%, the greatest of 2 changes (95% interval ")
    assert found.headline.endswith(", not tested: 6 executions of each are too few for tests of 2 comparisons.")


def test_a_program_without_a_size_is_none_of_the_changes(tmp_path: Path) -> None:
    times = {"w/a": [2.0] * 3, "w/b": [1.0] * 3, "x/a": [1.0] * 3}
    found = factory.study(tmp_path, in_pairs(["w", "x"], 3), times)
    assert found.headline.startswith("w under b against a: −50.0% (3 pairs), not tested")
    assert "x: no result for b" in found.answers[1]
    nothing = factory.study(tmp_path / "none", in_pairs(["w"], 3), {"w/a": [2.0] * 3})
    assert nothing.headline.startswith("Nothing can be compared yet")


def test_the_page_has_sizes_and_no_tests(tmp_path: Path) -> None:
    found = five(tmp_path)
    effects = next(f for f in figures_of(found) if f.section == "effects")
    assert "ratios of pairs; none has a 95% interval yet. Hollow: described, not tested." in effects.caption
    (row,) = [row for part in charts.forest(found)["datasets"].values() for row in part if "found" in row]
    assert (row["found"], row["words"], row["p"]) == (False, "−50.0%, not tested", "not tested")
    shown = tables.without_empty_columns(tables.contrasts(found))
    assert "p" not in shown.columns
    assert "p (Holm)" not in shown.columns
    assert "described and not tested" in shown.caption
    data = data_of(tmp_path)
    written = write_report(data, tmp_path / "report", ("html",))
    assert written.page is not None
    page = re.sub(r"\s+", " ", written.page.read_text(encoding="utf-8"))
    assert "No test was made. With so few executions no result, however clear, could have reached the level 5%" in page
    assert "Holm’s step-down" not in page
    assert "no tests: no result could have reached 5% over 1 comparison" in page


def test_the_next_command_is_the_one_that_gives_tests(tmp_path: Path) -> None:
    found = five(tmp_path)
    following = following_of(found, data_of(tmp_path))
    assert following.command == f"pagelab study resume {tmp_path} --executions 7"
    assert following.why.startswith("tests need 7 executions of each condition: 6 s more, and a further look")


def few_programs(directory: Path) -> tuple[Analysis, str]:
    def run_of(condition: Condition, slot: Slot) -> Run:
        return Run(wall_s=(1.0 if condition.policy == "b" else 1.25) + slot.execution / 1000)

    plan = in_pairs(["u", "v", "w"], 4, answer="set")
    data = data_of(factory.store(directory, plan, run_of))
    found = analyse(data)
    return found, following_of(found, data).command


def test_a_set_of_too_few_programs_is_described(tmp_path: Path) -> None:
    found, command = few_programs(tmp_path)
    assert found.over_set is not None
    assert {(c.p, c.p_holm, c.verdict) for c in found.over_set.contrasts} == {(None, None, "descriptive")}
    assert found.headline.startswith("Over 3 programs b may or may not change times (not tested: −20.0%")
    assert "7 programs are the fewest" in found.headline
    assert "resume" not in command, "more executions are no more programs"
    (time, _) = [f for f in figures_of(found) if f.section == "set"]
    assert "Hollow: described, not tested." in time.caption
