"""A program's words (names of processes, files, measurements) reach a terminal or a page only as text."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pagelab import terminal

PAGELAB = [sys.executable, "-m", "pagelab"]
EVIL = "\x1b]0;owned\x07\x1b[2J\u009b1m\u202e[red]x[/red]"
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def clean(text: str) -> None:
    found = CONTROLS.search(text)
    assert found is None, (found, text[max(0, found.start() - 80) : found.start() + 80])


def pagelab(*arguments: str, cwd: Path, code: int | None = 0) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run([*PAGELAB, *arguments], capture_output=True, cwd=cwd, check=False, timeout=200)
    assert code is None or done.returncode == code, done.stderr.decode(errors="replace")[-3000:]
    clean(done.stdout.decode())
    clean(done.stderr.decode())
    return done


@pytest.fixture
def speaker(tmp_path: Path) -> Path:
    """A program whose path, process name and measurements are hostile."""
    path = tmp_path / "e\x1b[31mvil\u202e[red]"
    shutil.copy("/bin/sh", path)
    return path


def script(more: str = "") -> str:
    word = json.dumps(EVIL)
    line = json.dumps({"name": EVIL, "value": 1.5, "unit": EVIL})
    return f"printf '%s\\n' '{line}' >&3; printf '%s\\n' 'bad \x1b[2J {word}' >&3; {more}true"


def test_one_function_shows_every_control_character_and_keeps_json() -> None:
    for code in [*range(0x3000), 0xFEFF]:
        shown = terminal.plain(chr(code))
        clean(shown)
        assert shown == chr(code) or shown.startswith(("\\x", "\\u"))
    assert terminal.plain("größer 大 😀 [red]") == "größer 大 😀 [red]"
    document = json.dumps({"name": EVIL}, ensure_ascii=False, indent=1)
    assert json.loads(terminal.plain_lines(document)) == {"name": EVIL}


def test_a_console_takes_brackets_as_they_are_and_styles_of_its_own_only(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.table import Table
    from rich.text import Text

    console = terminal.console(force_terminal=True, color_system="standard", width=200, highlight=False)
    table = Table(EVIL)
    table.add_row(EVIL)
    console.print(EVIL, style="bold")
    console.print(Text(EVIL))
    console.print(table)
    out = capsys.readouterr().out
    clean(re.sub(r"\x1b\[[0-9;]*m", "", out))
    assert out.count("[red]") == 4
    assert "\x1b[31m" not in out


def test_what_run_prints(tmp_path: Path, speaker: Path) -> None:
    done = pagelab("run", "--", str(speaker), "-c", script(f"'{speaker}' -c true & wait; "), cwd=tmp_path)
    assert b"owned" in done.stderr
    assert b"[red]" in done.stderr
    done = pagelab("run", "--json", "--", str(speaker), "-c", script(), cwd=tmp_path)
    record = json.loads(done.stdout)
    assert "\x1b" not in record["measurements"][0]["name"]
    pagelab("run", "--", str(speaker), "-c", "exit 3", cwd=tmp_path, code=None)
    pagelab("run", "--", "no-\x1b[31m-such", cwd=tmp_path, code=2)


def test_processes_that_are_left_behind_are_named_plainly(tmp_path: Path) -> None:
    name = "e\x1b[31mvil"
    path = tmp_path / name
    shutil.copy("/bin/sleep", path)
    done = pagelab("run", "--", "sh", "-c", f"'{path}' 60 & ", cwd=tmp_path)
    assert b"\\x1b[31m" in done.stderr


def test_map_and_stat_of_a_process_with_a_hostile_name(tmp_path: Path, speaker: Path) -> None:
    process = subprocess.Popen([str(speaker), "-c", "while :; do sleep 0.1; done"])
    try:
        time.sleep(0.3)
        done = pagelab("map", "--all", str(process.pid), cwd=tmp_path, code=None)
        assert done.stdout, done.stderr
        pagelab("stat", str(process.pid), cwd=tmp_path, code=None)
    finally:
        process.kill()
        process.wait()


@pytest.mark.by_turns(4)
@pytest.mark.timeout(600)
def test_study_status_report_and_compare(tmp_path: Path, speaker: Path) -> None:
    command = json.dumps([str(speaker), "-c", script()])
    (tmp_path / "study.toml").write_text(
        f"""
name = "words"
executions = 2
warmups = 0
[[workload]]
name = "speak"
command = {command}
[[policy]]
name = "kernel"
[[policy]]
name = "other"
pages = "4K"
"""
    )
    done = pagelab("study", "run", "study.toml", cwd=tmp_path, code=None)
    directory = tmp_path / "words.study"
    assert directory.exists(), done.stderr.decode()
    pagelab("study", "status", str(directory), cwd=tmp_path)
    pagelab("report", str(directory), cwd=tmp_path)
    pages = list(tmp_path.rglob("index.html"))
    assert pages
    for page in pages:
        body = re.sub(r"<script.*?</script>|<style.*?</style>", "", page.read_text(), flags=re.DOTALL)
        clean(body)
    for path in tmp_path.rglob("*"):
        if path != speaker:
            clean(path.name)


@pytest.mark.by_turns(4)
def test_imported_names(tmp_path: Path) -> None:
    results = [
        {"command": f"{EVIL} {number}", "mean": 1.0, "times": [1.0 + i / 100 for i in range(8)], "exit_codes": [0] * 8}
        for number in range(2)
    ]
    (tmp_path / "h.json").write_text(json.dumps({"results": results}))
    pagelab("import", "h.json", "--into", "imported", cwd=tmp_path)
    pagelab("report", "imported", cwd=tmp_path)
    for path in tmp_path.rglob("*"):
        clean(path.name)
