"""What every command line understands, and how each says that it does not: a table of what newcomers type."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from pagelab.cli.manpage import commands
from pagelab.errors import system_reason
from pagelab.spelling import meant_of, nearest

EVERYWHERE = [command.path.split()[1:] for command in commands().walk()]


def pagelab(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"COLUMNS": "200", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "pagelab", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=cwd)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import numpy as np

    from pagelab import trace

    path = tmp_path_factory.mktemp("habits") / "t.trace"
    trace.write(path, [np.arange(0x10000, 0x200000, 4096, dtype=np.uint64)])
    return path


def test_h_and_v_are_understood_by_every_command() -> None:
    """In one process: importing each command anew would take minutes."""
    script = (
        "import sys, typer\n"
        "from pagelab.cli import habits\nfrom pagelab.cli.commands import app\n"
        "root = habits.adapt(typer.main.get_command(app))\n"
        f"for words in {EVERYWHERE!r}:\n"
        "    for flag in ('-h', '-V', '--version'):\n"
        "        code = root([*words, flag], prog_name='pagelab', standalone_mode=False)\n"
        "        assert not code, (words, flag, code)\n"
        "        print('said', flag, *words)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\nsaid -") == 3 * len(EVERYWHERE)


BAD = [
    (["stuy"], "did you mean study?"),
    (["study", "rnu"], "did you mean run?"),
    (["simulate", "cahce"], "did you mean cache?"),
    (["nonsense"], "known: try, run, map"),
    (["trace", "inof", "TRACE"], "did you mean info?"),
    (["trace", "captrue", "--", "true"], "did you mean capture?"),
    (["run", "--polcy", "p.toml", "--", "true"], "did you mean --policy?"),
    (["run", "--page", "2M", "--", "true"], "did you mean --pages"),
    (["run"], "see: pagelab run --help"),
    # Regression: an unknown unit, or no valid number, although study.toml demands a unit.
    (["try", "--pages", "4K,2M", "--", "true"], "for 2 settings write --pages 4K --pages 2M\n"),
    (["try", "--minutes", "soon", "--", "true"], '"soon" is no time; allowed: minutes, such as 5 or 0.5; or a time'),
    (["run", "--timeout", "soon", "--", "true"], '"soon" is no time; allowed: seconds, such as 5 or 0.5; or a time'),
    # Regression: cannot find "sort -n x" in PATH.
    (["map", "--", "sort -n x"], "leave the quotes out: pagelab map -- sort -n x\n"),
    (["trace", "--", "sort -n x"], "leave the quotes out: pagelab trace -- sort -n x\n"),
    # Regression: both ended with "see: pagelab --help".
    (["doctor", "--fix"], "requires an argument; see: pagelab doctor --keys"),
    (["demo", "--minutes"], "requires an argument; see: pagelab demo --help"),
    (["run", "--cwd", "/a", "--cwd", "/b", "--", "true"], "--cwd is given 2 times"),
    (["run", "--env", "A=1", "--env", "A=2", "--", "true"], "--env A=… is given 2 times"),
    (["simulate", "paging", "TRACE", "--colors", "15"], "15 colours divide none of the memories"),
    (["simulate", "paging", "TRACE", "--colours", "15"], "15 colours divide none of the memories"),
    (["simulate", "paging", "TRACE", "--memory", "64"], "--memory 4K"),
    (["simulate", "paging", "TRACE", "--memory", "0"], "--memory 4K"),
    (["simulate", "paging", "TRACE", "--memory", "1M,1M"], "named twice"),
    (["simulate", "paging", "TRACE", "--colors", "0"], "at least 1 colour"),
    (["simulate", "paging", "TRACE", "--page-size", "0"], "not a power of two"),
    (["simulate", "paging", "TRACE", "--out", "/proc/none"], "(errno 2)"),
    (["simulate", "model", "--colors", "15"], "15 colours divide none of the memories"),
    (["simulate", "model", "--memory", "64"], "--memory 4K"),
    (["simulate", "model", "--out", "/proc/none"], "(errno 2)"),
    (["study", "run", "nondeterminsm"], "nondeterminism"),
    (["compare", "none.study", "none"], "there is no study none.study"),
    (["report", "/dev/null"], "/dev/null is no study; name the directory of one"),
    (["report", __file__], "it is damaged, or no study: name the directory of one"),
]


@pytest.mark.parametrize(("words", "said"), BAD, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_a_mistake_is_one_line_with_what_to_do(words: list[str], said: str, trace: Path) -> None:
    done = pagelab(*(str(trace) if word == "TRACE" else word for word in words))
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("pagelab: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_colours_that_divide_a_memory_are_shown(trace: Path) -> None:
    done = pagelab("simulate", "paging", str(trace), "--colours", "15", "--memory", "60K", "--json")
    assert [row["colours"] for row in json.loads(done.stdout)] == [15]


def test_of_the_colours_that_nobody_named_those_that_divide_a_memory_are_shown(trace: Path) -> None:
    """Regression: refused, with advice for 32 colours that nobody had asked for."""
    done = pagelab("simulate", "paging", str(trace), "--memory", "64K", "--json")
    assert sorted({row["colours"] for row in json.loads(done.stdout)}) == [1, 2, 4, 8, 16], done.stderr
    assert pagelab("simulate", "model", "--memory", "8K").returncode == 0


@pytest.mark.parametrize("command", [["run", "--json", "--"], ["map", "--json", "--"]], ids=" ".join)
def test_with_json_standard_output_has_nothing_else(command: list[str]) -> None:
    done = pagelab(*command, "sh", "-c", "echo own output; sleep 0.1")
    assert json.loads(done.stdout)
    assert "own output\n" in done.stderr


@pytest.mark.parametrize("command", ["run", "map"])
def test_a_place_that_cannot_be_written_is_told_before_anything_runs(command: str, tmp_path: Path) -> None:
    """Regression: the program had run by then, and its record was lost."""
    script = (
        "import os, sys\n"
        "from pagelab.cli import main\n"
        "os.access = lambda *_, **__: False\n"  # as it answers to a user who may not write there
        "sys.argv = ['pagelab', *sys.argv[1:]]\n"
        "main()\n"
    )
    words = [command, "-o", "it.json", "--", "sh", "-c", "echo it ran >&2"]
    command_line = [sys.executable, "-c", script, *words]
    done = subprocess.run(command_line, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert f"--output it.json: cannot write to {tmp_path}: Permission denied (errno 13); run: ls -ld " in done.stderr
    assert "it ran" not in done.stderr


def test_a_record_in_a_pipe_leaves_the_pipe_there(tmp_path: Path) -> None:
    """Regression: --output /dev/null of root made a file of /dev/null."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True)
    done = pagelab("run", "-q", "-o", str(pipe), "--", "true")
    said, _ = reader.communicate(timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(said)["outcome"]["status"] == "ok"
    assert pipe.is_fifo()


def test_what_is_not_near_is_not_suggested() -> None:
    assert nearest("xyzzy", ["study", "run"]) == []
    assert nearest("comapre", ["compare", "map", "report"]) == ["compare"]
    assert nearest("--pag", ["--pages", "--cpu"]) == ["--pages"]


def test_what_is_allowed_is_listed_with_a_guess_and_without() -> None:
    assert meant_of("exectuions", ["seed", "executions"]) == "; did you mean executions? Allowed: executions, seed"
    assert meant_of("xyzzy", ["seed", "executions"]) == "; allowed: executions, seed"


def unforeseen(tmp_path: Path, statement: str) -> subprocess.CompletedProcess[str]:
    imports = "import errno, sqlite3\nfrom pagelab.cli.trouble import reporting"
    script = f"{imports}\ndef work():\n    {statement}\nreporting(work)\n"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path)


@pytest.mark.parametrize(
    ("statement", "code", "said"),
    [
        ("open('/dev/full', 'w', buffering=1).write('x\\n')", 3, "No space left on device (errno 28)"),
        (
            "import pathlib; pathlib.Path('/dev/full').write_text('x')",
            3,
            "cannot read or write /dev/full: No space left",
        ),
        (
            "file = open('/dev/full', 'w', buffering=1); file.write('x\\n')",
            3,
            "cannot read or write /dev/full: No space",
        ),
        (
            "import os; os.mkdir('d'); os.chdir('d'); os.rmdir('../d'); os.getcwd()",
            2,
            "the working directory was removed: No such file or directory (errno 2)",
        ),
        ("open('gone/file')", 2, "gone/file: No such file or directory (errno 2); there is no directory gone"),
        ("raise sqlite3.OperationalError('database or disk is full')", 3, "No space left on device (errno 28)"),
        ("raise type('CommClosedError', (Exception,), {})('in tcp')", 3, "scheduler does not answer (in tcp)"),
        ("raise RuntimeError('a slip')", 4, "PAGELAB_TRACEBACK=1"),
    ],
)
def test_what_nobody_foresaw_is_one_line(tmp_path: Path, statement: str, code: int, said: str) -> None:
    done = unforeseen(tmp_path, statement)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_trace_for_a_directory_that_is_not_there_says_how_to_make_it(tmp_path: Path, trace: Path) -> None:
    command = [sys.executable, "-m", "pagelab", "trace", "convert", str(trace), "gone/new.trace"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert "there is no directory gone; run: mkdir -p gone" in done.stderr


def test_signs_that_the_locale_lacks_are_typed() -> None:
    script = "from pagelab import terminal; terminal.echo('3–4% ± 1 × 10⁻⁵⁰ … ☃'); terminal.say('a → b')"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert (done.stdout, done.stderr) == ("3-4% +- 1 x 10^-50 ... ?\n", "a -> b")


def test_an_error_without_a_number_is_told_by_its_text() -> None:
    """As polars raises it."""
    assert system_reason(OSError("No space left on device (os error 28)")) == "No space left on device (errno 28)"
    assert system_reason(OSError(errno.ENOSPC, "full")) == "full (errno 28)"


def test_a_study_file_that_cannot_be_written_whole_is_not_left_behind(tmp_path: Path) -> None:
    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    done = subprocess.run(
        [sys.executable, "-m", "pagelab", "study", "init"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        preexec_fn=no_room,
    )
    assert done.returncode == 3
    told = "cannot write study.toml: File too large (errno 27); raise the limit of a file's size; run: ulimit -f"
    assert told in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_help_of_traces_lists_its_commands() -> None:
    """Regression: -h was read as the beginning of a capture, --help was not."""
    short, long = (pagelab("trace", flag).stdout for flag in ("-h", "--help"))
    assert short == long
    assert "interleave" in short


def test_a_record_that_does_not_fit_is_told_by_its_name_and_leaves_no_part_of_it(tmp_path: Path) -> None:
    """Regression: the name of a temporary file was told, which stayed there."""
    script = (
        "import resource, signal, sys\n"
        "from pagelab.cli import run_once\n"
        "from pagelab.errors import MachineError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))\n"
        "one = run_once.Asked(['true'], output=run_once.Path('r.json'))\n"
        "try:\n    run_once._write('x' * 100, one)\n"
        "except MachineError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    advice = "raise the limit of a file's size; run: ulimit -f"
    assert done.stdout == f"cannot write r.json: File too large (errno 27); {advice}\n"
    assert list(tmp_path.iterdir()) == []


def test_a_full_place_of_standard_output_is_named() -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        command = [sys.executable, "-m", "pagelab", "doctor", "--no-noise", "--json"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 3
    assert "cannot read or write standard output: No space left on device (errno 28)" in done.stderr


@pytest.mark.parametrize("words", [[], ["try"], ["demo"], ["study", "run"]])
def test_help_shows_no_value_after_a_flag(words: list[str]) -> None:
    done = pagelab(*words, "-h")
    assert done.returncode == 0
    assert "<bool>" not in done.stdout
    assert "--help" in done.stdout


def test_times_have_the_units_of_a_study() -> None:
    """Regression: ``--minutes 30s`` and ``--timeout 5s`` were refused as no numbers."""
    from pagelab.cli.times import minutes, seconds

    assert [minutes(text) for text in ("30s", "5", "2min", "1.5 h", 0.5, "2m")] == [0.5, 5, 2, 90, 0.5, 2]
    assert [seconds(text) for text in ("5s", "5", "500ms", "2min", 1e-3)] == [5, 5, 0.5, 120, 1e-3]
    assert pagelab("run", "--quiet", "--timeout", "30s", "--", "true").returncode == 0


def test_only_commands_with_an_option_for_another_directory_propose_it() -> None:
    """Of every command: an error that another directory would mend names the command's own option, or none."""
    script = (
        "import typer\n"
        "from pagelab.cli import habits\nfrom pagelab.cli.commands import app\n"
        "from pagelab.errors import BadInputError, another_would_do\n"
        "def full(**_):\n    raise another_would_do(BadInputError('no room'))\n"
        f"for words in {EVERYWHERE!r}:\n"
        "    command = habits.adapt(typer.main.get_command(app))\n"
        "    for word in words:\n"
        "        command = command.get_command(command.make_context(None, [], resilient_parsing=True), word)\n"
        "    if hasattr(command, 'list_commands'):\n        continue\n"
        "    command.callback = full\n"
        "    options = [name for one in command.params for name in one.opts]\n"
        "    try:\n        command.invoke(command.make_context(None, [], resilient_parsing=True))\n"
        "    except BadInputError as error:\n        print(*words, options, error, sep='|')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = [line.rsplit("|", 2) for line in done.stdout.splitlines()]
    assert len(said) > 30
    for words, options, message in said:
        known = "'--into'" in options or "'--out'" in options
        assert ("choose another directory" in message) == known, (words, message)
        if known:
            assert f"'{message.split(': ')[-1].split()[0]}'" in options, (words, message)


def test_a_full_directory_is_told_with_the_options_that_there_are(tmp_path: Path) -> None:
    """Regression: ``model check``, ``study resume`` and ``demo`` proposed ``--into``, which they do not have."""
    broken = tmp_path / "gups.model"
    broken.mkdir()
    (broken / "campaign.json").write_text("{}")
    for words in (["model", "range", str(broken)], ["model", "run", "--into", str(broken), "--", "true"]):
        done = pagelab(*words)
        assert done.returncode == 2
        assert "cannot go on with" in done.stderr
        proposed = "; or choose another directory with: --into DIR\n"
        assert done.stderr.endswith(proposed) == (words[1] == "run"), done.stderr
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / ".lock").mkdir()
    demo = pagelab("demo", "--out", str(tmp_path / "demo"))
    assert demo.returncode == 2
    assert "cannot write" in demo.stderr
    assert demo.stderr.endswith("; or choose another directory with: --out DIR\n")
