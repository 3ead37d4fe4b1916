"""A study that root runs for somebody else: the programs have that user's rights, what pagelab keeps has root's."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from pagelab.study.control import run_study
from pagelab.study.launching import local_tools
from pagelab.study.store import Store

_NOBODY = "65534"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="runs programs as another user; run: sudo make test")


@pytest.fixture
def open_place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory that everybody may enter and only root may change, with sudo's variables for another user."""
    monkeypatch.setenv("SUDO_UID", _NOBODY)
    monkeypatch.setenv("SUDO_GID", _NOBODY)
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_runs_under_sudo_start_and_their_error_output_is_kept(open_place: Path, mode: int) -> None:
    spec, out = open_place / "s.toml", open_place / "out"
    spec.write_text(
        'name = "s"\nexecutions = 2\nwarmups = 0\n[[policy]]\nname = "kernel"\n'
        '[[workload]]\nname = "says"\nshell = "id -u >&2; exit 3"\n'
        '[[workload]]\nname = "fine"\ncommand = "true"\n'
    )
    out.mkdir(mode=mode)
    run_study(spec, out, local_tools())
    with Store.open(out, write=False) as store:
        runs = store.runs()
    ends = {
        name: runs.filter(pl.col("condition") == name)["status"].to_list() for name in ("says/kernel", "fine/kernel")
    }
    assert ends == {"says/kernel": ["failed"] * 2, "fine/kernel": ["ok"] * 2}
    kept = sorted((out / "output").iterdir())
    assert [file.read_text() for file in kept] == [f"{_NOBODY}\n"] * 2
    assert all(file.stat().st_uid == 0 for file in kept)


def test_a_link_in_place_of_the_error_output_is_not_written_through(open_place: Path) -> None:
    """Whoever owns the study's directory may have put it there."""
    spec, out, other = open_place / "s.toml", open_place / "out", open_place / "other"
    spec.write_text(
        'name = "s"\nexecutions = 1\nwarmups = 0\n[[policy]]\nname = "kernel"\n'
        '[[workload]]\nname = "says"\nshell = "echo bad >&2; exit 3"\n'
    )
    other.write_text("kept")
    (out / "output").mkdir(parents=True)
    (out / "output" / "run-000000.stderr").symlink_to(other)
    run_study(spec, out, local_tools())
    assert other.read_text() == "kept"
    assert (out / "output" / "run-000000.stderr").read_text() == "bad\n"
