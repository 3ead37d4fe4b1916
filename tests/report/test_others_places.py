"""A report where another user may change the directory: what that user puts there, or exchanges, gains nothing.

Regression: root followed links there, and wrote, removed and opened to all what lay where names led by then.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import factory
import pytest
from factory import Run, data_of

from pagelab.analysis import StudyData
from pagelab.errors import BadInputError, MachineError
from pagelab.report import write
from pagelab.report.write import write_report
from pagelab.study.plan import Condition
from pagelab.study.schedule import Slot

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="files of another user; run: sudo make test")
NOBODY = 65534
SECRET = "root's alone"


def run_of(condition: Condition, slot: Slot) -> Run:
    return Run(wall_s=(2 if condition.policy == "a" else 1) + slot.execution / 1000)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> StudyData:
    plan = factory.plan(["w"], ["a", "b"], 8)
    return data_of(factory.store(tmp_path_factory.mktemp("small") / "study", plan, run_of))


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A private directory with a file that every user may read."""
    place = tmp_path / "secret"
    place.mkdir(0o700)
    (place / "x.csv").write_text(SECRET)
    (place / "x.csv").chmod(0o644)
    return place


@pytest.fixture
def during(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Has something done by another user while a report is built: before its files are written."""

    def plan(what: Callable[[], object]) -> None:
        build = write._build

        def after_it(*arguments: object) -> None:
            what()
            build(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(write, "_build", after_it)

    return plan


def building(place: Path) -> Path:
    (found,) = place.glob(".report-*")
    return found


def untouched(secret: Path) -> None:
    assert stat.S_IMODE(secret.stat().st_mode) == 0o700
    assert {file.name: file.read_text() for file in secret.iterdir()} == {"x.csv": SECRET}


def test_links_in_an_older_report_are_not_kept(small: StudyData, secret: Path, tmp_path: Path) -> None:
    write_report(small, tmp_path / "report", ("data",))
    (tmp_path / "report" / "x.csv").symlink_to(secret / "x.csv")
    (tmp_path / "report" / "plots").symlink_to(secret)
    report = write_report(small, tmp_path / "report", ("html",)).directory
    assert (report / "runs.csv").is_file()
    assert not (report / "x.csv").exists()
    assert not (report / "plots").exists()
    untouched(secret)


@AS_ROOT
def test_a_report_of_another_user_is_neither_kept_nor_replaced(small: StudyData, tmp_path: Path) -> None:
    written = write_report(small, tmp_path / "report", ("data",)).directory
    os.chown(written, NOBODY, NOBODY)
    with pytest.raises(BadInputError, match="it belongs to another user; name a new directory with --out"):
        write_report(small, written, ("html",))
    assert (written / "runs.csv").is_file()


def test_a_link_in_the_place_of_a_report_is_refused(small: StudyData, secret: Path, tmp_path: Path) -> None:
    (tmp_path / "report").symlink_to(secret)
    with pytest.raises(BadInputError, match="it is a file or a link"):
        write_report(small, tmp_path / "report", ("html",))
    untouched(secret)


@pytest.mark.parametrize("instead", ["link", "directory with links"])
def test_what_takes_the_name_of_the_new_report_gets_nothing(
    small: StudyData, secret: Path, tmp_path: Path, instead: str, during: Callable[[Callable[[], object]], None]
) -> None:
    place = tmp_path / "place"
    place.mkdir()

    def exchange() -> None:
        name = building(place)
        name.rename(place / "gone")
        if instead == "link":
            name.symlink_to(secret)
        else:
            name.mkdir()
            (name / "records.jsonl").symlink_to(secret / "x.csv")
            (name / "index.html").symlink_to(secret / "x.csv")

    during(exchange)
    write_report(small, place / "report", ("html", "data"))
    untouched(secret)


def test_what_takes_the_name_of_the_older_report_is_put_back(
    small: StudyData, secret: Path, tmp_path: Path, during: Callable[[Callable[[], object]], None]
) -> None:
    place = tmp_path
    write_report(small, place / "report", ("html",))

    def exchange() -> None:
        (place / "report").rename(place / "older")
        secret.rename(place / "report")

    during(exchange)
    with pytest.raises(MachineError, match="another process changed it meanwhile"):
        write_report(small, place / "report", ("html",))
    untouched(place / "report")
    assert (place / "older" / "index.html").is_file()


@AS_ROOT
@pytest.mark.parametrize("owner", [0, NOBODY])
def test_root_follows_only_links_that_another_user_cannot_make(small: StudyData, tmp_path: Path, owner: int) -> None:
    (tmp_path / "real").mkdir()
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, NOBODY, NOBODY)
    (theirs / "study").symlink_to(tmp_path / "real")
    os.chown(theirs / "study", owner, owner, follow_symlinks=False)
    if owner == 0:
        assert write_report(small, theirs / "study" / "report", ("html",)).page
    else:
        with pytest.raises(BadInputError, match="another user's link, which root does not follow"):
            write_report(small, theirs / "study" / "report", ("html",))
    assert (tmp_path / "real" / "report").exists() == (owner == 0)
