"""``pagelab map`` of a command that runs under a policy: held where it ends, looked at, and let go."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.frames import _missing as frames_missing
from harness.mapping import NEEDS_THP, pagelab_map, sizes
from pagelab.errors import PagelabError
from pagelab.placement import governed
from pagelab.placement.model import AddressMap
from pagelab.runner import RunRequest

M2 = 2 << 20
# The program must not free its memory before it ends: that is when it is mapped.
KEEPS_32_MIB = "import os; kept = bytearray(32 << 20); kept[::4096] = b'x' * (32 << 8); os._exit(0)"


@NEEDS_THP
def test_a_command_under_a_policy_lies_in_the_pools_as_asked() -> None:
    result = pagelab_map("--json", "--pages", "anon=2M", "--", sys.executable, "-c", KEEPS_32_MIB)
    assert result.returncode == 0, result.stderr
    found = AddressMap.model_validate_json(result.stdout)
    assert (found.policy, found.moment) == ("anon=2M", "exit")
    pool = next(region for region in found.regions if region.name == "anonymous pool")
    assert pool.start == 0x6700_0000_0000
    assert sizes(pool).get(M2, 0) >= 30 << 20, found.warnings


@pytest.mark.skipif(frames_missing() is not None, reason=str(frames_missing()))
def test_the_pool_of_frames_and_copied_data_keep_their_names() -> None:
    """Regression: the frame pool's address had changed, and copies of data and bss counted as anonymous memory."""
    result = pagelab_map("--json", "--frames", "page-coloring:colors=8", "--", sys.executable, "-c", KEEPS_32_MIB)
    assert result.returncode == 0, result.stderr
    found = AddressMap.model_validate_json(result.stdout)
    kinds = {region.name: region.kind for region in found.regions}
    assert kinds["frame pool"] == "special"
    assert kinds["data of libc.so.6"] == "data"
    assert not [region.start for region in found.regions if region.kind == "anon" and region.start < 0x6600_0000_0000]


@pytest.mark.parametrize("flags", [[], ["--pages", "4K"]], ids=["no policy", "policy"])
def test_without_randomisation_everything_lies_where_it_lay(flags: list[str]) -> None:
    def starts() -> list[int]:
        result = pagelab_map("--json", "--aslr", "off", *flags, "--", "true")
        assert result.returncode == 0, result.stderr
        found = AddressMap.model_validate_json(result.stdout)
        assert (found.policy is None) == (not flags)
        return [region.start for region in found.regions if region.kind in ("file", "data", "stack")]

    assert starts() == starts()


def test_a_command_under_a_policy_is_ended_after_its_time() -> None:
    result = pagelab_map("--json", "--at", "0.3", "--fetch", "prefault", "--", "sleep", "600")
    assert result.returncode == 0, result.stderr
    found = AddressMap.model_validate_json(result.stdout)
    assert (found.command, found.moment) == ("sleep 600", "now")


def test_however_short_a_command_under_a_policy_is_it_is_held() -> None:
    """Regression: the program was looked for below the launcher, and a short one could be over by then."""
    request = RunRequest(argv=["/bin/true"], policy_toml='pages = "4K"')
    for _ in range(20):
        traced, record = governed.run_and_map(request, lambda pid, _: Path(f"/proc/{pid}/exe").readlink())
        assert (traced.value.name, traced.moment) == ("true", "exit")
        assert record.outcome.status == "ok"


def test_a_command_under_a_policy_that_cannot_be_executed_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(Path("/bin/true").read_bytes()[:200])
    broken.chmod(0o755)
    with pytest.raises(PagelabError, match="broken"):
        governed.run_and_map(RunRequest(argv=[str(broken)], preload="never"), lambda pid, _: pid)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--pages", "2M", "1"], "a policy applies only to a command: process 1 runs already"),
        (["--aslr", "off", "1"], "--aslr applies only to a command: process 1 runs already"),
        (["--aslr", "no", "--", "true"], "--aslr no: allowed: on, off"),
        (["--pages", "3M", "--", "true"], "--pages 3M: "),
        (["--policy", "/nonexistent.toml", "--", "true"], "/nonexistent.toml: cannot read the file"),
        (["--pages", "2M", "--", "/nonexistent"], "/nonexistent"),
    ],
)
def test_policies_that_the_command_line_refuses(arguments: list[str], words: str) -> None:
    result = pagelab_map(*arguments)
    assert result.returncode == 2, result.stderr
    assert words in result.stderr
