"""How far a program uses each pool, from records of it, and how much of that is memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.guests import Workshop
from pagelab.advise import answer
from pagelab.advise.campaign import Asked, Found, policy_text
from pagelab.advise.design import Region
from pagelab.layouts.footprint import used
from pagelab.runner import RunRequest, run

pytestmark = pytest.mark.needs_page_sizes

MIB = 1 << 20


def test_arenas_of_threads_are_part_of_anonymous_memory(workshop: Workshop) -> None:
    program = str(workshop.build("advise/fills_an_arena"))
    records = {
        "4K": run(RunRequest(argv=[program], policy_toml=policy_text("4K", [], aligned=True))),
        "2M": run(RunRequest(argv=[program], policy_toml=policy_text("2M", []))),
    }
    found = used(records)
    assert found["anon"] >= 64 * MIB + 8 * MIB  # behind the stack of the thread, at a multiple of 64 MiB
    assert found.get("heap", 0) < 2 * MIB


def found_with(used: int, resident: int) -> Found:
    """The result of a program with one region over all addresses."""
    return Found(
        used={"anon": used},
        regions=[Region("anon", 0, used)],
        effects=None,
        choice=None,
        rounds=1,
        executions=16,
        metric="wall_s",
        metric_why="",
        resident_base=resident,
        resident_huge=resident,
    )


@pytest.mark.parametrize(
    ("used", "resident", "addresses", "empty"),
    [
        (960, 142, "960 MiB of addresses, of which at most 142 MiB were resident", True),
        (196, 150, "196 MiB of addresses, of which at most 150 MiB were resident", False),
        (196, 210, "196 MiB of addresses", False),
        (196, 0, "196 MiB of addresses", False),  # the record has no peak
    ],
)
def test_addresses_are_not_called_memory(used: int, resident: int, addresses: str, *, empty: bool) -> None:
    """A reservation of node: 960 MiB of addresses, of which the largest process had 142 MiB."""
    found = found_with(used * MIB, resident * MIB)
    assert answer._addresses(found) == addresses
    said = answer._mostly_empty(Asked(argv=("node", "x y.js"), cwd="/"), found, Path("node.advice"))
    assert bool(said) == empty
    if empty:
        assert "960 MiB of them, and no process had more than 142 MiB resident at once" in said
        assert said.endswith("pagelab map --policy node.advice/footprint/policies/4K.toml -- node 'x y.js'")
