"""Whole diagnoses of programs that exist as distributions only: what is said of each planted cause."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from pagelab.cli.options import free_directory
from pagelab.diagnose import allocate
from pagelab.diagnose.answer import fix
from pagelab.diagnose.campaign import PILOT, State, times_of
from pagelab.diagnose.model import Diagnosis, Finding, Settings
from pagelab.diagnose.page import write
from pagelab.diagnose.run import begin, resume
from pagelab.errors import BadInputError, RunFailedError
from pagelab.record import Record
from pagelab.study.errors import StudyInterruptedError
from pagelab.study.plan import Condition
from pagelab.study.progress import Silent
from pagelab.study.store import Store
from pagelab.study.tools import Tools
from study.fakes import FakeRunner, record

Program = Callable[[Condition, np.random.Generator], float]
"""A run time in milliseconds."""
BLOCKS = 16


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    """A fake program takes no time, so that a budget would buy thousands of executions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(allocate, "MOST_BLOCKS", BLOCKS)
        patch.setattr(allocate, "MOST_CONFIRMED", 60)
        yield


def tools(program: Program, left_out: Callable[[Condition], str | None] = lambda _: None) -> Tools:
    random = np.random.default_rng(1)

    def behave(condition: Condition) -> Record:
        return record(condition, wall_ns=int(1e6 * program(condition, random)))

    return Tools(FakeRunner(behave), left_out, lambda: {"machine": {"thp_bytes": 2 << 20}, "provenance": {}})


def settings(tmp_path: Path, minutes: float = 5.0) -> Settings:
    return Settings(argv=["true", "{nothing}"], cwd=str(tmp_path), minutes=minutes)


def diagnosed(
    tmp_path: Path, program: Program, left_out: Callable[[Condition], str | None] = lambda _: None
) -> Diagnosis:
    return begin(settings(tmp_path), tmp_path / "d", tools(program, left_out))


def finding(found: Diagnosis, key: str) -> Finding:
    return next(one for one in found.findings if one.key == key)


def stack(condition: Condition, random: np.random.Generator) -> float:
    """30% slower at every other place of the stack; with ASLR off the environment decides."""
    if condition.request.aslr is False:
        slow = len(condition.request.env.set.get("PAGELAB_PADDING", "")) > 2048
    else:
        slow = bool(random.random() < 0.5)
    return (130 if slow else 100) * float(random.lognormal(0, 0.003))


def pages(condition: Condition, random: np.random.Generator) -> float:
    """Half of the executions get huge pages, unless a size is asked for."""
    slow = 'pages = "4K"' in condition.request.policy_toml
    if 'pages = "' not in condition.request.policy_toml:
        slow = bool(random.random() < 0.5)
    return (150 if slow else 100) * float(random.lognormal(0, 0.003))


def sleeps(_condition: Condition, random: np.random.Generator) -> float:
    return float(random.uniform(50, 150))


def steady(_condition: Condition, random: np.random.Generator) -> float:
    return 100 + float(random.normal(0, 0.1))


@pytest.fixture(scope="module")
def of_the_stack(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Diagnosis]:
    """The directory and the diagnosis of a program that depends on its stack's address."""
    directory = tmp_path_factory.mktemp("stack")
    return directory / "d", diagnosed(directory, stack)


def test_a_program_that_depends_on_its_stacks_address(of_the_stack: tuple[Path, Diagnosis]) -> None:
    _, found = of_the_stack
    assert found.outcome == "confirmed"
    assert re.match(r"ASLR decides it: 100 or 130 ms; pinned, \d+% of the variance is gone \(", found.headline)
    assert found.sentences[0].startswith("pinned by aslr-off, the spread falls from 1")
    for key in ("aslr", "everything"):
        assert finding(found, key).verdict == "cause", key
    for key in ("environment", "pages", "cpu", "page-cache", "frames-random"):
        assert finding(found, key).verdict in ("undecided", "ruled-out"), key
    environment = finding(found, "environment")
    assert environment.values_differ
    assert environment.share is not None
    assert environment.share.estimate > 0.9
    assert found.caveat is not None
    assert "depends on the size of the environment (one of the sizes tried takes 1.30 times" in found.caveat.text
    assert not any("overlap" in told for told in found.interactions)
    assert found.confirmation is not None
    assert found.confirmation.of_default.sd_ratio.high < 0.1


@pytest.mark.by_turns(4)
def test_a_program_that_depends_on_the_size_of_its_pages(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, pages)
    assert found.outcome == "confirmed"
    assert found.confirmation is not None
    assert found.confirmation.recommended in ("pages-4K", "pages-2M")
    assert finding(found, "pages").values_differ
    assert finding(found, "aslr").verdict in ("undecided", "ruled-out")
    assert found.confirmation.mean == "changed"


@pytest.mark.by_turns(4)
def test_a_program_that_only_sleeps_is_explained_by_nothing(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, sleeps)
    assert found.outcome == "unexplained"
    assert re.match(r"No cause found: \d+ to \d+ ms; none of \d sources that were pinned was seen", found.headline)
    logs = np.log(np.random.default_rng(1).uniform(50, 150, 1_000_000))
    assert found.default_spread.low < np.sqrt(np.expm1(logs.var())) < found.default_spread.high
    assert found.confirmation is None
    assert not (tmp_path / "d" / "confirmation").exists()


@pytest.mark.by_turns(4)
def test_a_steady_program_has_nothing_to_explain(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, steady)
    assert found.outcome == "nothing-to-explain"
    assert found.headline.startswith("Nothing jumps: an execution takes 100 ms, and executions differ by 0.")


@pytest.mark.by_turns(4)
def test_a_finding_that_fresh_executions_do_not_show_is_not_quoted(tmp_path: Path) -> None:
    """The cause is gone when the confirmation begins: say so, and recommend nothing."""
    seen: list[int] = []

    def fading(condition: Condition, random: np.random.Generator) -> float:
        seen.append(1)
        confirming = (tmp_path / "d" / "confirmation" / "study.db").exists()
        return sleeps(condition, random) if confirming else stack(condition, random)

    found = diagnosed(tmp_path, fading)
    assert found.outcome == "refuted"
    assert re.match(
        r"No cause found: .* ms; .* looked like it, and \d+ fresh executions of each refute", found.headline
    )
    assert fix(found) is None


@pytest.mark.by_turns(4)
def test_what_the_machine_cannot_do_is_left_out_with_the_reason(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, steady, lambda each: "needs root" if "frames" in each.request.policy_toml else None)
    for key in ("frames-random", "frames-bin-hopping", "frames-page-coloring"):
        assert (finding(found, key).verdict, finding(found, key).reason) == ("left-out", "needs root")
    assert any("was left out: needs root" in note for note in found.notes)


@pytest.mark.by_turns(4)
def test_a_source_under_which_the_program_fails_is_left_out(tmp_path: Path) -> None:
    def behave(condition: Condition) -> Record:
        if 'pages = "2M"' in condition.request.policy_toml:
            return record(condition, outcome={"status": "failed", "exit_code": 7, "signal": None})
        return record(condition, wall_ns=int(np.random.default_rng().normal(1e8, 1e5)))

    of_the_test = Tools(
        FakeRunner(behave), lambda _: None, lambda: {"machine": {"thp_bytes": 2 << 20}, "provenance": {}}
    )
    found = begin(settings(tmp_path), tmp_path / "d", of_the_test)
    assert [value.name for value in finding(found, "pages").values] == ["pages-4K"]


def test_a_program_that_fails_is_not_diagnosed(tmp_path: Path) -> None:
    def behave(condition: Condition) -> Record:
        return record(condition, outcome={"status": "failed", "exit_code": 7, "signal": None})

    of_the_test = Tools(FakeRunner(behave), lambda _: None, lambda: {"machine": {}, "provenance": {}})
    with pytest.raises(RunFailedError, match="ended with exit code 7"):
        begin(settings(tmp_path), tmp_path / "d", of_the_test)


@pytest.mark.parametrize("existed", [False, True])
def test_a_program_that_is_not_there_leaves_nothing_behind(tmp_path: Path, existed: bool) -> None:
    directory = tmp_path / "d"
    if existed:
        directory.mkdir()
    missing = settings(tmp_path).model_copy(update={"argv": ["no-such-program-here"]})
    with pytest.raises(BadInputError, match=r"^cannot find the program no-such-program-here"):
        begin(missing, directory, tools(steady))
    assert directory.exists() == existed
    assert not existed or not list(directory.iterdir())


def test_no_message_says_that_a_diagnosis_finds_nothing(tmp_path: Path) -> None:
    """Regression: "no difference in 35 comparisons could be found, however clear", of its studies' own comparisons."""
    notes: list[str] = []

    class Told(Silent):
        def note(self, text: str) -> None:
            notes.append(text)

    with pytest.raises(BadInputError, match="is too little"):  # after the probe, whose comparisons are not tested
        begin(settings(tmp_path, minutes=0.005), tmp_path / "d", tools(steady), Told())
    assert not [text for text in notes if "could be found" in text]


def test_a_budget_that_is_too_small_says_what_would_do(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"is too little .* run: pagelab diagnose --minutes \d+ .*-- (?!CMD)"):
        begin(settings(tmp_path, minutes=1e-6), tmp_path / "d", tools(steady))


@pytest.mark.parametrize("existed", [False, True])
def test_a_refused_budget_leaves_nothing_and_the_least_minutes_are_proposed(tmp_path: Path, existed: bool) -> None:
    """Regression: its directory stayed, refused the next diagnosis, and was refused when it was continued."""
    directory = tmp_path / "sort.diagnosis"
    if existed:
        directory.mkdir()
        (tmp_path / "mine").touch()
    with pytest.raises(BadInputError) as refused:
        begin(settings(tmp_path, minutes=1e-6), directory, tools(lambda _condition, _random: 60_000.0))
    told = re.search(
        r"program: (\d+) minutes? may .*, (\d+) would do well; run: .* --minutes (\d+) ", str(refused.value)
    )
    assert told is not None, refused.value
    least, well, proposed = map(int, told.groups())
    assert proposed == least <= well
    assert f" --into {directory} -- " in str(refused.value)
    assert directory.exists() == existed
    assert not existed or not list(directory.iterdir())


def test_a_diagnosis_without_a_named_directory_takes_the_next_free_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: after a diagnosis of ``sort``, another program of that name had to be given --into."""
    from typer.testing import CliRunner

    from pagelab.cli.commands import app
    from pagelab.diagnose import run

    monkeypatch.chdir(tmp_path)
    (tmp_path / "sort.diagnosis").mkdir()
    asked: list[Path] = []

    def begun(_settings: Settings, directory: Path, *_: object, **__: object) -> Diagnosis:
        asked.append(directory)
        raise BadInputError("enough")

    monkeypatch.setattr(run, "begin", begun)
    for _ in range(2):  # the second as if the first were at work
        CliRunner().invoke(app, ["diagnose", "--", "sort", "b.txt"])
    assert asked == [Path("sort-2.diagnosis"), Path("sort-3.diagnosis")]


def test_a_refused_budget_of_a_directory_that_was_chosen_proposes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: it proposed --into sort-2.diagnosis, which may exist."""
    monkeypatch.chdir(tmp_path)
    claimed = free_directory(None, "sort", ".diagnosis", "", PILOT)
    asked = settings(tmp_path, minutes=1e-6).model_copy(update={"level": 0.9, "negligible": 0.05})
    with pytest.raises(BadInputError, match=r"run: pagelab diagnose --minutes \d+ --level 0\.9 --negligible 5 -- "):
        begin(asked, claimed.path, tools(lambda _condition, _random: 60_000.0), claimed=claimed)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.by_turns(4)
def test_an_interrupted_diagnosis_continues_where_it_was(tmp_path: Path) -> None:
    started = 0

    def stopping(condition: Condition, random: np.random.Generator) -> float:
        nonlocal started
        started += 1
        if started == 120:
            os.kill(os.getpid(), signal.SIGINT)
        return stack(condition, random)

    with pytest.raises(StudyInterruptedError, match=f"continue with: pagelab diagnose --resume {tmp_path}/d$"):
        begin(settings(tmp_path), tmp_path / "d", tools(stopping))
    with pytest.raises(BadInputError, match="continue it with: pagelab diagnose --resume"):
        begin(settings(tmp_path), tmp_path / "d", tools(stopping))
    with Store.open(tmp_path / "d", write=False) as store:
        kept = len(store.finished())
    assert kept > 0
    found = resume(tmp_path / "d", tools(stack))
    assert found.outcome == "confirmed"
    again = resume(tmp_path / "d", tools(steady))  # nothing is left to run: the same answer from the same data
    assert again.findings == found.findings
    assert again.confirmation == found.confirmation


def test_what_is_left_behind_is_a_study_with_the_diagnosis_beside_it(of_the_stack: tuple[Path, Diagnosis]) -> None:
    from pagelab.analysis import load
    from pagelab.report.write import write_report

    directory, found = of_the_stack
    assert Diagnosis.model_validate_json((directory / "diagnosis.json").read_text()) == found
    page = write(directory, found).read_text()
    assert "ASLR decides it: 100 or 130" in page
    assert (directory / "diagnosis.svg").read_text().startswith("<svg")
    with Store.open(directory, write=False) as store:
        report = write_report(load(store), directory / "report", ("data",))
    assert report.analysis.headline
    assert len(times_of(directory)["default"]) == State.load(directory).blocks == BLOCKS
    assert json.loads((directory / "diagnose.json").read_text())["recommended"][1] == "aslr-off"


def test_a_program_that_never_starts_leaves_nothing(tmp_path: Path) -> None:
    """Regression: it advised a command of studies, and left a diagnosis that could not go on."""
    broken = tmp_path / "broken"
    broken.write_text("#!/no/such\n")
    broken.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "pagelab", "diagnose", "--minutes", "1", "--", "./broken"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "this cannot be diagnosed: " in done.stderr
    assert "/no/such" in done.stderr
    assert "study run" not in done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["broken"]


@pytest.mark.by_turns(4)
def test_no_spread_at_all_is_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="took the same time"):
        diagnosed(tmp_path, lambda _condition, _random: 100.0)


@pytest.mark.by_turns(4)
def test_names_of_parameters_in_a_command_reach_the_program(tmp_path: Path) -> None:
    seen: set[tuple[str, ...]] = set()

    def noting(condition: Condition, random: np.random.Generator) -> float:
        seen.add(tuple(condition.request.argv))
        return steady(condition, random)

    diagnosed(tmp_path, noting)
    assert seen == {("true", "{nothing}")}
