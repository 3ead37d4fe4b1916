"""What a block carried ends with it: a new block has what it has natively, whatever the old one's mapping had.

The rows are the states that the kernel keeps with a mapping; docs/preload.md lists them. Each is tried with blocks of
several sizes, of mappings, the heap and arenas, given back and taken anew, or mapped over.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.differential import FRAME_POLICIES, SIZE_POLICIES
from harness.frames import MAIN, FramesPolicy
from harness.guests import Workshop
from harness.huge_pages import HugePages
from harness.launching import Runner
from harness.policies import Policy

GOVERNING = [*SIZE_POLICIES, *FRAME_POLICIES, MAIN[2]]


def shown(line: str, policy: Policy) -> str:
    """A line without what the policy itself brings to memory, as docs/preload.md and docs/frames.md say."""
    if isinstance(policy, FramesPolicy):
        line = line.replace(" um", "")  # registered: pages are placed when they are missing
    if policy.huge_pages:
        line = re.sub(" (ht|ac|nr)", "", line)  # such memory is accounted for by its pool
        line = re.sub(": -?[0-9]+, given", ": ?, given", line)  # on parts of them the kernel can set less
        line = re.sub(r"locked -?\d+", "locked ?", line)  # the kernel counts no huge pages of its pool
    return line


def lines_natively(workshop: Workshop, guest: str) -> list[str]:
    done = subprocess.run([str(workshop.build(guest))], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, ""), f"{done.stdout}{done.stderr}"
    return done.stdout.splitlines()


def is_as_natively(
    guest: str, natively: list[str], policy: Policy, workshop: Workshop, run_under: Runner, alike: Callable[..., bool]
) -> None:
    """Its lines are ``alike`` under the policy, two by two."""
    run = run_under(policy.toml, [str(workshop.build(guest))], env=policy.environment())
    governed = run.stdout.splitlines()
    different = [
        f"natively {mine}\ngoverned {theirs}"
        for mine, theirs in zip(natively, governed, strict=False)
        if not alike(mine, theirs)
    ]
    assert not different, f"{len(different)} rows differ:\n" + "\n".join(different[:12]) + f"\n{run.story()}"
    run.succeeded()
    assert len(governed) == len(natively), run.story()


@pytest.fixture
def able(policy: Policy, huge_pages: HugePages) -> Policy:
    """The policy, with what it needs; skipped where the machine lacks it."""
    missing = policy.missing()
    if missing:
        pytest.skip(missing)
    if policy.huge_pages:
        huge_pages.need(policy.huge_pages)
    return policy


@pytest.fixture(scope="module")
def natively(workshop: Workshop) -> list[str]:
    return lines_natively(workshop, "state/carried")


def test_every_row_is_tried(natively: list[str]) -> None:
    """New memory is zero, a child sees what was written, and natively nothing is left of any state but mseal's."""
    rows = [line for line in natively if not line.startswith("mseal")]
    assert len(rows) == 280
    for line in rows:
        assert "given back 0; zero 1 flags" in line, line
        assert "child 0; discard 0; zero 1; locked 0; gone 0" in line, line


@pytest.mark.parametrize("policy", GOVERNING, ids=str)
def test_a_new_block_has_nothing_of_the_old_one(
    able: Policy, natively: list[str], workshop: Workshop, run_under: Runner
) -> None:
    def alike(mine: str, theirs: str) -> bool:
        return shown(mine, able) == shown(theirs, able) or (bool(able.huge_pages) and mine.startswith("mseal"))

    is_as_natively("state/carried", natively, able, workshop, run_under, alike)


def test_the_list_in_the_documentation_is_the_list_of_the_test(natively: list[str]) -> None:
    text = (Path(__file__).parent.parent / "docs" / "preload.md").read_text()
    section = text.partition("## Properties of a block end with it")[2].partition("\n## ")[0]
    for name in {line.split()[0] for line in natively} - {"nothing"}:
        assert f"`{name}`" in section, name


@pytest.fixture(scope="module")
def grown_natively(workshop: Workshop) -> list[str]:
    lines = lines_natively(workshop, "state/grown")
    assert len(lines) == 187
    assert not [line for line in lines if "in part" in line or "grown 0; kept 1; zero 1;" not in line]
    return lines


@pytest.mark.parametrize("policy", GOVERNING, ids=str)
def test_a_block_that_grows_carries_all_of_it_in_its_new_part(
    able: Policy, grown_natively: list[str], workshop: Workshop, run_under: Runner
) -> None:
    def alike(mine: str, theirs: str) -> bool:
        # Reserved pages refuse other states for parts of them, which are normal memory where a child must not see it.
        refused = bool(able.huge_pages) and mine.split()[0] not in ("nothing", "DONTFORK", "WIPEONFORK")
        return mine == theirs or refused

    is_as_natively("state/grown", grown_natively, able, workshop, run_under, alike)
