"""What cannot be had is refused before the program starts, with what to do about it; with fewer rights, what works."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.frames import BY_NAME, possible
from harness.guests import Workshop
from harness.launching import Runner, open_to_all
from harness.packages import need
from pagelab import machine, paths

NOBODY = 65534
COLORING = BY_NAME["page-coloring"]
RULE = '[[rule]]\nmemory = ["anon", "arenas"]\n'


def refused(toml: str, place: Path, code: int, prefix: tuple[str, ...] = (), **how: Any) -> str:
    """The launcher's complaint; the program (which would leave a file) must not have been started."""
    possible(COLORING)
    open_to_all(place)
    left = place / "started"
    request = {
        "schema": "pagelab.request/1",
        "argv": ["touch", str(left)],
        "policy_toml": toml,
        "machine": machine.describe(),
        "library": str(paths.library()),
        "record": str(place / "record.json"),
    }
    done = subprocess.run(
        [*prefix, str(paths.launcher())],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        **how,
    )
    complaint: str = done.stderr
    assert done.returncode == code, complaint
    assert not left.exists(), complaint
    assert not (place / "record.json").exists(), complaint
    assert "\n" not in complaint.strip() or "run:" in complaint, complaint
    return complaint


def test_without_any_rights_nothing_starts(tmp_path: Path) -> None:
    complaint = refused(COLORING.toml, tmp_path, 3, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/")
    assert "CAP_SYS_ADMIN" in complaint
    assert "sudo" in complaint


def test_root_without_frame_numbers_is_refused(tmp_path: Path) -> None:
    prefix = (need("setpriv"), "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin")
    complaint = refused(COLORING.toml, tmp_path, 3, prefix)
    assert "CAP_SYS_ADMIN" in complaint


def test_a_budget_that_no_machine_has(tmp_path: Path) -> None:
    toml = 'frames = { kind = "page-coloring", colors = 64, budget = "4096G" }\n'
    complaint = refused(toml, tmp_path, 3)
    assert "memory" in complaint
    assert "4096G" in complaint or "4T" in complaint


def test_exact_frames_that_do_not_exist(tmp_path: Path) -> None:
    complaint = refused(f'{RULE}frames = {{ kind = "exact", frames = [{(1 << 39):#x}] }}\n', tmp_path, 3)
    assert f"{1 << 39:#x}" in complaint


def test_exact_frames_that_are_reserved(tmp_path: Path) -> None:
    """Frame 0 belongs to the firmware on every PC."""
    complaint = refused(f'{RULE}frames = {{ kind = "exact", frames = [0] }}\n', tmp_path, 3)
    assert "0x0" in complaint or "frame 0" in complaint


def test_masks_and_a_number_of_colours_that_is_no_power_of_two(tmp_path: Path) -> None:
    complaint = refused(
        'frames = { kind = "page-coloring", colors = 48, masks = ["0x1", "0x2", "0x4", "0x8"] }\n', tmp_path, 2
    )
    assert "48" in complaint


def test_colours_for_the_page_cache(tmp_path: Path) -> None:
    complaint = refused('[[rule]]\nmemory = ["file"]\nframes = "page-coloring"\n', tmp_path, 2)
    assert "page cache" in complaint


def test_a_module_that_is_not_there(tmp_path: Path) -> None:
    complaint = refused('frames = { kind = "module", path = "/nonexistent/strategy.so" }\n', tmp_path, 2)
    assert "/nonexistent/strategy.so" in complaint


@pytest.mark.parametrize("name", ["page-coloring", "bin-hopping"])
@pytest.mark.parametrize("guest", ["demand", "threads", "fork_child", "discard", "descriptors"])
def test_program_of_another_user_is_placed_too(name: str, guest: str, workshop: Workshop, run_under: Runner) -> None:
    """As nobody, who may not see frame numbers: the launcher hands over what is needed, and only that."""
    policy = possible(BY_NAME[name])
    extra = ["closed"] if guest == "descriptors" else []
    run = run_under(policy.toml, [str(workshop.build(f"frames/{guest}")), *extra], user="nobody").succeeded()
    assert (run.stdout, run.stderr) == ("ok\n", ""), run.story()
    assert run.the_record.settings.uid == NOBODY
