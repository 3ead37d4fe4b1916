"""Fixtures of the black-box tests: compiled guests, policies this machine can run, and the launcher."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.guests import Workshop
from harness.launching import Runner, open_to_all
from harness.policies import POLICIES, POOL, Policy


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Builds guest programs, each once a session."""
    directory = tmp_path_factory.mktemp("guests")
    open_to_all(directory)  # guests that drop privileges must reach their program
    return Workshop(directory)


@pytest.fixture
def run_under(tmp_path: Path) -> Runner:
    """``run_under(policy_toml, argv, **request) -> Run``."""
    return Runner(tmp_path)


@pytest.fixture(params=POLICIES, ids=str)
def policy(request: pytest.FixtureRequest) -> Policy:
    """Each policy of the list in turn; skipped, with the command that enables it, where it cannot run."""
    chosen: Policy = request.param
    missing = chosen.missing()
    if missing:
        pytest.skip(missing)
    if chosen.huge_pages:
        available = request.getfixturevalue("huge_pages")
        if available < chosen.huge_pages:
            pytest.skip(
                f"policy {chosen.name}: {available} of {chosen.huge_pages} huge pages of 2 MiB can be had; "
                f"run: sudo sysctl vm.nr_hugepages={chosen.huge_pages}"
            )
    return chosen


@pytest.fixture(scope="session")
def huge_pages() -> Iterator[int]:
    """Free 2 MiB pages in the kernel's pool; root fills it for the session and puts the old size back."""
    wanted = max(policy.huge_pages for policy in POLICIES)
    size, free = POOL / "nr_hugepages", POOL / "free_hugepages"
    if not size.exists():
        yield 0
        return
    before, available = int(size.read_text()), int(free.read_text())
    if available >= wanted or os.geteuid() != 0:
        yield available
        return
    size.write_text(str(before + wanted - available))
    try:
        yield int(free.read_text())
    finally:
        size.write_text(str(before))
