"""How far a program uses each pool, from records of it."""

from __future__ import annotations

from harness.guests import Workshop
from pagelab.advise.campaign import policy_text
from pagelab.layouts.footprint import used
from pagelab.runner import RunRequest, run

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
