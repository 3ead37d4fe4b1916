"""The table of strategies (crates/abi) and those who read it: the policy language, the header, records, the docs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pagelab import machine, policy
from pagelab.analysis.policy_summary import policy_summary
from pagelab.contract.rows import Strategy
from pagelab.contract.strategies import STRATEGIES

ROOT = Path(__file__).parents[1]
HEADER = (ROOT / "crates/preload/include/pagelab.h").read_text()
KERNEL_SOURCE = (ROOT / "crates/preload/include/pagelab_kernel.c").read_text()
DOCS = (ROOT / "docs/frames.md").read_text()
EXAMPLES = {"modulo": "pattern = [0, 1]", "exact": "frames = [4096]", "module": 'path = "m.so"'}
by_name = pytest.mark.parametrize("one", STRATEGIES, ids=lambda one: one.name)


def test_names_differ() -> None:
    assert len({one.name for one in STRATEGIES}) == len(STRATEGIES)


@by_name
def test_the_policy_language_knows_it_and_refuses_what_it_does_not_take(one: Strategy) -> None:
    heap = f'name = "p"\n[[rule]]\nmemory = "heap"\nframes = {{ kind = "{one.name}", colors = 4, '
    needed = EXAMPLES.get(one.name, "pin = true")
    parsed = policy.parse(f"{heap}{needed} }}\n", "p.toml")
    assert parsed.rules[0].frames == one.name
    with pytest.raises(policy.PolicyError, match="unknown parameter") as refused:
        policy.parse(f"{heap}{needed}, nonsense = 1 }}\n", "p.toml")
    assert [name for name, _ in one.parameters] == list(refused.value.allowed[: len(one.parameters)])


def test_the_policy_language_knows_no_other() -> None:
    with pytest.raises(policy.PolicyError) as refused:
        policy.parse('frames = "nonsense"\n', "p.toml")
    assert list(refused.value.allowed) == ["kernel", *(one.name for one in STRATEGIES)]


def test_the_header_has_the_names_and_numbers_of_the_table() -> None:
    """Modules are named by policies only: a program that has one calls it."""
    named = {
        name: int(number) for name, number in re.findall(r"^ +PAGELAB_([A-Z_]+) = (\d+)[, ]", HEADER, re.MULTILINE)
    }
    wanted = {one.name.upper().replace("-", "_"): code for code, one in enumerate(STRATEGIES, start=1)}
    del wanted["MODULE"]
    assert {name: named.get(name) for name in wanted} == wanted


def test_the_file_for_static_programs_has_the_names_of_the_table() -> None:
    """By the constants of the header, which the test above compares with the table's numbers."""
    wanted = {one.name.upper().replace("-", "_"): one.name for one in STRATEGIES if one.name != "module"}
    assert dict(re.findall(r'\[PAGELAB_([A-Z_]+)\] = "(.+?)"', KERNEL_SOURCE)) == {"KERNEL": "usual", **wanted}


@by_name
def test_the_docs_name_it_with_what_it_takes(one: Strategy) -> None:
    assert f"`{one.name}`" in DOCS or f'"{one.name}"' in DOCS
    for parameter, _ in one.parameters:
        assert re.search(rf"\b{parameter}\b", DOCS), parameter


@by_name
def test_reports_and_records_have_its_name(one: Strategy) -> None:
    schema = json.loads((ROOT / "docs/schema/record-1.json").read_text())
    assert one.name in schema["$defs"]["StrategyKind"]["enum"]
    assert policy_summary(f'frames = "{one.name}"\n') == one.summary


@by_name
def test_a_policy_with_it_is_written_and_read_again(one: Strategy) -> None:
    needed = EXAMPLES.get(one.name, 'budget = "4M"')
    text = f'name = "p"\n[[rule]]\nmemory = "heap"\nframes = {{ kind = "{one.name}", colors = 4, {needed} }}\n'
    parsed = policy.parse(text, "p.toml")
    again = policy.parse(parsed.toml, "p.toml")
    assert again.document == parsed.document
    assert again.toml == parsed.toml
    assert policy.parse(again.toml, "p.toml", machine.describe()).rules[0].frames == one.name
