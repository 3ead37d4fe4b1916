"""The settings of a run: one list, of the contract, that the command line, studies and reports read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagelab.cli.manpage import commands
from pagelab.contract.request import Flush, Request
from pagelab.contract.rows import KEEP, RunSetting
from pagelab.contract.settings import RUN_SETTINGS
from pagelab.errors import BadInputError
from pagelab.runner import RunRequest
from pagelab.study.planning import plan_text
from pagelab.study.spec import RawPolicy, RawStudy, RawWorkload

SCHEMA = Path(__file__).parents[1] / "docs/schema/request-1.json"
VALUES = {
    "cpus": st.lists(st.integers(0, 1023), min_size=1, max_size=4),
    "switch": st.booleans(),
    "number": st.integers(0, 63),
    "seconds": st.floats(0.001, 1e6, allow_nan=False),
    "size": st.integers(0, 1 << 62),
    "text": st.text("abcxyz", min_size=1, max_size=8),
}


def values(one: RunSetting) -> st.SearchStrategy[object]:
    return st.sampled_from(one.words) if one.kind == "words" else VALUES[one.kind]


@pytest.mark.parametrize("one", RUN_SETTINGS, ids=lambda one: one.field)
@given(data=st.data())
def test_what_a_study_says_of_a_value_is_that_value(one: RunSetting, data: st.DataObject) -> None:
    value = data.draw(values(one))
    assert one.asked(one.said(value)) == value
    assert one.said(one.asked(None)) is None
    Request(argv=["true"], **{one.field: value})  # the request takes it


def test_every_field_of_the_contract_that_is_a_setting_is_listed() -> None:
    described = json.loads(SCHEMA.read_text())["properties"]
    assert [one.field for one in RUN_SETTINGS] == [name for name, field in described.items() if "x-setting" in field]


@pytest.mark.parametrize("one", RUN_SETTINGS, ids=lambda one: one.field)
def test_tables_of_study_toml_have_the_keys_that_the_contract_gives_them(one: RunSetting) -> None:
    tables = {"study": RawStudy, "workload": RawWorkload, "policy": RawPolicy}
    assert {name for name, model in tables.items() if one.key in model.model_fields} == set(one.study)


@pytest.mark.parametrize("name", ["run", "try", "compare"])
def test_commands_have_an_option_for_each(name: str) -> None:
    (command,) = (command for command in commands().walk() if command.path == f"pagelab {name}")
    flags = {flag for option in command.options for flag in option.names}
    for one in RUN_SETTINGS:
        if one.flag is not None and (name == "run" or one.compared):
            assert f"--{one.flag}" in flags


TOML = {
    "cpus": ("[2, 3]", [2, 3]),
    "switch": ('"off"', False),
    "number": ("1", 1),
    "seconds": ('"2min"', 120.0),
    "size": ('"1.5M"', 3 << 19),
    "text": ('"nobody"', "nobody"),
}


@pytest.mark.parametrize("one", [one for one in RUN_SETTINGS if one.study], ids=lambda one: one.field)
def test_a_study_hands_on_what_its_nearest_table_says(one: RunSetting) -> None:
    written, value = (f'"{one.words[-1]}"', one.words[-1]) if one.kind == "words" else TOML[one.kind]
    line = f"{one.key} = {written}\n"

    def asked(**lines: str) -> object:
        text = f'name = "s"\n{lines.get("study", "")}[[workload]]\nname = "w"\ncommand = "true"\n'
        text += f'{lines.get("workload", "")}[[policy]]\nname = "p"\n{lines.get("policy", "")}'
        (condition,) = plan_text(text, Path("/x/s.toml"), Path("/x/out")).conditions
        return getattr(condition.request, one.field)

    unsaid = getattr(Request(argv=["true"]), one.field)
    assert asked() == unsaid
    for table in one.study:
        assert asked(**{table: line}) == value
    if "policy" in one.study and one.words:
        assert asked(study=line, policy=f'{one.key} = "{KEEP}"\n') is None, "the policy's word counts"


def test_a_word_that_a_flag_does_not_know_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pagelab", "run", "--scheduler", "rr", "--", "true"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "--scheduler rr: allowed: fifo (without the flag it is left as it is)" in done.stderr


def test_short_forms_of_a_run_request_are_the_request_s_own() -> None:
    short = RunRequest(
        argv=("sort", "f"), env={"A": "1"}, unset=["B"], clear_env=True, measure_fd=None, measure_regex="x",
        flush="files", flush_files=["f"], cpus=(1,), timeout_s=3,
    )  # fmt: skip
    long = Request.model_validate(
        {
            "argv": ["sort", "f"],
            "env": {"clear": True, "set": {"A": "1"}, "unset": ["B"]},
            "measurements": {"fd": None, "regex": "x"},
            "flush": {"mode": "files", "files": ["f"]},
            "cpus": [1],
            "timeout_s": 3.0,
        }
    )
    assert short.model_dump() == long.model_dump()
    assert RunRequest(argv=["true"]).measurements.fd == 3
    assert RunRequest(argv=["true"], flush=Flush(mode="all")).flush.mode == "all"


@pytest.mark.parametrize(
    ("fields", "said"),
    [({"scheduler": "rr"}, "RunRequest: scheduler = 'rr'"), ({"cpu": [1]}, "RunRequest: cpu = [1]: Extra inputs")],
)
def test_a_run_request_names_what_is_wrong(fields: dict[str, object], said: str) -> None:
    with pytest.raises(BadInputError) as refused:
        RunRequest(argv=["true"], **fields)
    assert str(refused.value).startswith(said)
