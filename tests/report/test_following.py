"""The verdict's ends, and the one command to type after it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import factory
import pytest
from factory import Run, data_of

from pagelab.analysis import Analysis, StudyData, analyse
from pagelab.analysis.answer import fewest_of, reach
from pagelab.analysis.following import following_of
from pagelab.analysis.verdict import judged_of
from pagelab.contract.request import EnvChanges, Flush
from pagelab.stats.paired import FEWEST_PAIRS
from pagelab.study.budget import spent_s
from pagelab.study.plan import Step
from pagelab.study.setting import KERNEL
from pagelab.study.store import Store
from pagelab.study.trying import Pilot


def study(
    directory: Path, change: float, noise: float, executions: int = 8, **more: object
) -> tuple[Analysis, StudyData]:
    """One program under kernel and 2M: 2M takes (1 + change) as long, and executions scatter by ``noise``."""
    plan = factory.plan(["w"], ["kernel", "2M"], executions).model_copy(update=more)
    made = factory.store(
        directory / "study",
        plan,
        lambda c, s: Run(
            wall_s=(1 + change * (c.policy == "2M")) * (1 + noise * ((s.execution * 5 + c.index * 3) % 8))
        ),
    )
    data = data_of(made)
    return analyse(data), data


def at_a_further_look(needed: int) -> int:
    """Half of the error is left: intervals are 2.2414 / 1.9600 times as wide, and the square of that times as many are
    needed.
    """
    return math.ceil(needed * (2.241403 / 1.959964) ** 2)


def test_what_cannot_be_told_is_asked_in_pairs_for_as_long_as_it_takes(tmp_path: Path) -> None:
    found, data = study(tmp_path, 0.0, 0.05)
    (told,) = judged_of(found.planned(), found.design, found.metrics)
    assert told.answer.said == "cannot-tell"
    assert found.headline.startswith("w under 2M against kernel: cannot tell: under ")
    following = following_of(found, data)
    assert following.command.startswith("cd / && pagelab try --pages kernel --pages 2M --metric wall_s --minutes ")
    assert following.command.endswith(" -- /usr/bin/w")
    assert f"about {max(told.answer.needed or 0, 16):,} executions of each" in following.why


def test_the_report_of_a_try_goes_on_as_the_try_did(tmp_path: Path) -> None:
    """Regression: ``try --env`` named more minutes, its report a further look; ``--pages`` differed in its minutes."""
    plan = factory.plan(["w"], ["1", "2"], 8)
    conditions = [
        one.model_copy(
            update={
                "request": one.request.model_copy(
                    update={"policy_toml": KERNEL, "env": EnvChanges(set={"X": one.policy, "Y": "0"})}
                )
            }
        )
        for one in plan.conditions
    ]
    made = factory.store(
        tmp_path / "try.study",
        plan.model_copy(update={"conditions": conditions}),
        lambda c, s: Run(wall_s=1 + 0.02 * ((s.execution * 5 + c.index * 3) % 8)),
    )
    data = data_of(made)
    found = analyse(data)
    (told,) = judged_of(found.planned(), found.design, found.metrics)
    needed = told.answer.needed
    assert needed is not None
    with Store.open(made, write=False) as store:
        block_s = spent_s(store) / 8
    minutes = Pilot(block_s, 2 * block_s).minutes_for(needed)
    following = following_of(found, data)
    settings = "--env X=1 --env X=2 --env Y=0"
    asked = f"cd / && pagelab try {settings} --metric wall_s --minutes {minutes:g} -- /usr/bin/w"
    assert following.command == asked
    assert following.why.startswith(f"±3% for w under 2 needs about {needed} executions of each, ")


def test_more_executions_than_a_time_may_make_are_asked_of_the_study_itself(tmp_path: Path) -> None:
    found, data = study(tmp_path, 0.0, 3.0)
    (told,) = judged_of(found.planned(), found.design, found.metrics)
    assert told.answer.needed is not None
    assert told.answer.needed > 1000
    assert following_of(found, data).command == (
        f"pagelab study resume {tmp_path / 'study'} --executions {at_a_further_look(told.answer.needed)}"
    )


def test_what_was_found_is_run_once_to_show_what_the_kernel_gave(tmp_path: Path) -> None:
    found, data = study(tmp_path, -0.5, 0.001)
    assert found.headline.startswith("w is 50.0% faster under 2M than under kernel (95% interval ")
    assert following_of(found, data).command == "cd / && pagelab run --pages 2M -- /usr/bin/w"


def test_an_unfinished_study_is_continued_first(tmp_path: Path) -> None:
    plan = factory.plan(["w"], ["kernel", "2M"], 8)
    made = factory.store(tmp_path / "study", plan, lambda _, s: Run() if s.position < 10 else None)
    data = data_of(made)
    assert following_of(analyse(data), data).command == f"pagelab study resume {made}"


def test_where_no_test_could_reject_the_number_that_could_is_said(tmp_path: Path) -> None:
    found, _ = study(tmp_path, -0.5, 0.001, executions=5, test="pairs")
    (told,) = judged_of(found.planned(), found.design, found.metrics)
    assert told.words == "cannot tell: 5 pairs, 6 are the fewest"
    assert "cannot tell: 5 pairs, 6 are the fewest" in found.headline


@pytest.mark.parametrize("alpha", [0.1, 0.05, 0.01, 0.05 / 25, 0.05 / 1000])
def test_the_fewest_are_those_with_which_the_smallest_p_is_small_enough(alpha: float) -> None:
    pairs, executions = fewest_of("pairs", alpha), fewest_of("rank-sum", alpha)
    assert 2 / 2**pairs <= alpha
    assert pairs == FEWEST_PAIRS or 2 / 2 ** (pairs - 1) > alpha
    assert 2 / math.comb(2 * executions, executions) <= alpha < 2 / math.comb(2 * executions - 2, executions - 1)


def test_the_axis_holds_what_is_crowded_and_never_less_than_what_does_not_matter() -> None:
    assert reach([(-0.001, 0.001)]) == pytest.approx((-0.03, 0.03))
    low, high = reach([(-0.4, -0.36)] + [(-0.01, 0.01)] * 9)
    assert low == pytest.approx(-0.4), "nothing within half is cut off"
    assert 0.03 <= high <= 0.1
    low, high = reach([(88.0, 90.0)] + [(-0.04, 0.08)] * 9)
    assert high <= 0.1
    assert low >= -0.06
    assert reach([(-0.9999, 3.0)])[0] >= -1.0


def test_what_try_cannot_ask_is_asked_by_more_executions(tmp_path: Path) -> None:
    """A study whose programs need steps, or policies that no flag says, grows as a whole."""
    plan = factory.plan(["w"], ["kernel", "2M"], 8)
    toml = 'name = "2M"\npages = { mosaic = [["0", "64M", "2M"]], otherwise = "4K" }\n'
    changed = [c.asking(policy_toml=toml) if c.policy == "2M" else c for c in plan.conditions]
    found, data = study(tmp_path, 0.0, 0.05, conditions=changed)
    (told,) = judged_of(found.planned(), found.design, found.metrics)
    following = following_of(found, data)
    assert told.answer.needed is not None
    executions = at_a_further_look(told.answer.needed)
    assert following.command == f"pagelab study resume {tmp_path / 'study'} --executions {executions}"
    assert "more, and a further look, which is judged more strictly" in following.why


@pytest.mark.parametrize(
    "changed",
    [
        {"request": {"stdin": "/data/numbers.txt"}},
        {"request": {"flush": Flush(mode="all", files=[])}},
        {"request": {"env": EnvChanges(unset=["LANG"])}},
        {"setup": [Step(argv=["make"], shown="make", cwd="/")]},
        {"drop_first": 3},
    ],
)
def test_no_command_measures_another_program_than_the_study(tmp_path: Path, changed: dict[str, Any]) -> None:
    """Regression: the next command of a study of `sort` with an input was a `try` of `sort` without one, whose answer
    was sure, and another.
    """
    asked = changed.get("request", {})
    changed = {name: value for name, value in changed.items() if name != "request"}
    plan = factory.plan(["w"], ["kernel", "2M"], 8)
    conditions = [one.asking(**asked).model_copy(update=changed) for one in plan.conditions]
    for change, scatter in ((0.0, 0.05), (-0.5, 0.001)):
        found, data = study(tmp_path / f"{change}", change, scatter, conditions=conditions)
        command = following_of(found, data).command
        assert command.startswith(("pagelab study resume ", "pagelab report "))


def test_more_of_a_study_of_different_numbers_is_told_with_the_time_of_all(tmp_path: Path) -> None:
    """Regression: with 8 executions of one program and 40 of another, 41 were said to take a block's time."""
    plan = factory.plan(["w", "v"], ["kernel", "2M"], 40).model_copy(update={"blocks": {"w": 8, "v": 40}})
    toml = 'name = "2M"\npages = { mosaic = [["0", "64M", "2M"]], otherwise = "4K" }\n'
    changed = [c.asking(policy_toml=toml) if c.policy == "2M" else c for c in plan.conditions]
    made = factory.store(
        tmp_path / "study",
        plan.model_copy(update={"conditions": changed}),
        lambda c, s: Run(wall_s=1 + (0.02 if c.workload == "w" else 1e-4) * ((s.execution * 5 + c.index * 3) % 8)),
    )
    data = data_of(made)
    found = analyse(data)
    told = next(one for one in judged_of(found.planned(), found.design, found.metrics) if one.contrast.workload == "w")
    assert told.answer.said == "cannot-tell"
    assert (told.answer.needed or 0) < 41
    following = following_of(found, data)
    assert following.command.endswith("--executions 41")
    needed = at_a_further_look(told.answer.needed or 0)
    assert f"needs about {needed} executions of each, the study goes on to 41 of every" in following.why
    # 66 executions of 1.07 s on average, and 2 of v.
    assert ": 1 min 13 s more" in following.why
