"""Fixtures of the black-box tests: compiled guests, policies this machine can run, and the launcher."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from datetime import date
from functools import partial
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import settings

from harness import page_sizes, turns
from harness.guests import Workshop
from harness.huge_pages import HugePages
from harness.launching import Runner, open_to_all
from harness.natively import DATA, native
from harness.packages import need
from harness.policies import POLICIES, Policy


def pytest_configure() -> None:
    """A shell without job control starts background jobs with SIGINT ignored, and the programs we test inherit it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, partial(end_session, os.getpid()))
    # Verdicts on the machine that tests measure are none of its users'.
    os.environ.setdefault("PAGELAB_STATE_DIR", tempfile.mkdtemp(prefix="pagelab-state-"))
    # How long an example takes says how busy the machine is.
    settings.register_profile("pagelab", deadline=None)
    settings.load_profile("pagelab")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--by-turns", action="store_true", help="of the tests marked by_turns(N), an Nth: others tomorrow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--by-turns"):
        return
    # .ci/run names its day, which may end before it does.
    today = int(os.environ.get("PAGELAB_TESTS_DAY", date.today().toordinal()))
    left_out = [item for item in items if not turns.is_today(item, today)]
    items[:] = [item for item in items if item not in set(left_out)]
    config.hook.pytest_deselected(items=left_out)


def end_session(session: int, number: int, _frame: FrameType | None) -> None:
    """On SIGTERM: fixtures put the machine's settings back before pytest, process ``session``, ends. Its forks end as
    usual."""
    if os.getpid() == session:
        pytest.exit("SIGTERM", 128 + number)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def pytest_unconfigure() -> None:
    directory = os.environ.get("PAGELAB_STATE_DIR", "")
    if Path(directory).name.startswith("pagelab-state-"):
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(autouse=True)
def _page_sizes_of_the_machine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Sizes that a test switches, or needs, are not another session's at the same time."""
    kind = page_sizes.hold_of(request.node)
    if kind is None:
        yield
        return
    with page_sizes.held(kind):
        yield


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
        request.getfixturevalue("huge_pages").need(chosen.huge_pages)
    return chosen


@pytest.fixture(scope="session")
def huge_pages() -> Iterator[HugePages]:
    """Puts the pool's old size back at the end of the session."""
    pool = HugePages()
    yield pool
    pool.restore()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An empty directory to run in."""
    path = tmp_path / "place"
    path.mkdir()
    return path


@pytest.fixture
def everyones(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that an unprivileged user can write."""
    path = tmp_path_factory.mktemp("everyones")
    open_to_all(path)
    return path


@pytest.fixture(scope="session")
def natively_built(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, str]:
    """The C project, built without pagelab: its report program, and what that prints."""
    place = tmp_path_factory.mktemp("project") / "c_project"
    shutil.copytree(DATA / "c_project", place)
    native([need("make"), "-s", "-j2", "CC=gcc"], place)
    return (place / "report").read_bytes(), native(["./report"], place)


@pytest.fixture
def one_cpu() -> Iterator[None]:
    """Everything runs on one CPU: pages given back lie in its own free list first, out of reach of the others."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)
