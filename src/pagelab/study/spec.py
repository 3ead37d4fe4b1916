"""Reads study.toml as written: it checks the shape, resolves nothing, and does not touch the machine.

:func:`read` returns a :class:`RawStudy`; :mod:`pagelab.study.planning` turns it into conditions. Every error names
file, line (where it can be found), key and the allowed values. The language is described in docs/study.md.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, create_model, model_validator

from ..contract.rows import KEEP, RunSetting
from ..contract.settings import RUN_SETTINGS
from ..errors import BadInputError, quoted
from ..sizes import seconds_of, size_bytes
from . import toml_model
from .shell import needs_shell

Scalar = str | int | float | bool


def _duration(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError('write a duration such as "90s", "500ms", "2min" or "1h"')
    if isinstance(value, str):
        found = seconds_of(value)
        if found is None:
            raise ValueError(f'"{value}" is no duration; allowed: a number with ms, s, min or h, such as "90s"')
        return found
    return value


def _minutes(value: Any) -> Any:
    return _duration(value) / 60 if isinstance(value, str) else value


def _fraction(value: Any) -> Any:
    if isinstance(value, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", value)
        if not found:
            raise ValueError(f'"{value}" is no percentage; allowed: such as "2%" or 0.02')
        return float(found[1]) / 100
    return value


def _size(value: Any) -> int:
    try:
        return size_bytes(value, "the size")
    except BadInputError as error:
        raise ValueError(str(error)) from None


def _words(value: Any) -> Any:
    """Splits a command string into words as a shell does; refuses it where only a shell could run it."""
    if not isinstance(value, str):
        return value
    if needs_shell(re.sub(r"(?<!\\)\n", " ", value.strip())):
        raise ValueError(
            'the command needs a shell (|, &, ;, <, >, $, `, *, ?, ~ or # in it); write shell = "…" '
            'instead of command = "…", or an array of words: command = ["sort", "file"]'
        )
    return shlex.split(value)


def _steps(value: Any) -> Any:
    """An array of steps, from one step (a shell line or ``{ command = [...] }``) or from an array of them."""
    items = value if isinstance(value, list) else [value]
    return [{"shell": item} if isinstance(item, str) else item for item in items]


def _nonempty(words: list[str]) -> list[str]:
    if not words or not words[0]:
        raise ValueError("the command is empty")
    return words


Duration = Annotated[float, BeforeValidator(_duration), Field(gt=0, allow_inf_nan=False)]
Minutes = Annotated[
    float,
    BeforeValidator(_minutes, json_schema_input_type=Annotated[float, Field(ge=0.05, le=43_200)] | str),
    Field(ge=0.05, le=43_200, allow_inf_nan=False),
]
Size = Annotated[int, BeforeValidator(_size), Field(le=1 << 62)]
Fraction = Annotated[float, BeforeValidator(_fraction), Field(gt=0, lt=1)]
Words = Annotated[list[str], BeforeValidator(_words), AfterValidator(_nonempty)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$", max_length=80)]
ParameterName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
ONE = "one"
"""The word in study.toml for any one CPU."""
_Cpus = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] | Literal["one"]
Values = Annotated[list[Scalar], Field(min_length=1)]


class _Raw(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _form(one: RunSetting) -> Any:
    """The type of a setting's value, as study.toml writes it."""
    if one.kind in ("switch", "words"):
        return Literal[*one.words, *([KEEP] if one.default is None else [])]
    number = Annotated[int, Field(ge=0)]
    return {"cpus": _Cpus, "number": number, "seconds": Duration, "size": Size, "text": str}[one.kind]


def _settings_of(table: str) -> type[_Raw]:
    """A model with the keys of run settings in ``table``, from the contract (:mod:`pagelab.contract.settings`)."""
    fields: dict[str, Any] = {}
    for one in RUN_SETTINGS:
        if table in one.study:
            is_choice = table == "study" and one.words
            fields[one.key] = (_form(one), one.default or KEEP) if is_choice else (_form(one) | None, None)
    return create_model(f"_{table.title()}Settings", __base__=_Raw, **fields)


if TYPE_CHECKING:

    class _StudySettings(_Raw): ...

    class _WorkloadSettings(_Raw): ...

    class _PolicySettings(_Raw): ...
else:
    _StudySettings, _WorkloadSettings, _PolicySettings = map(_settings_of, ("study", "workload", "policy"))


class RawStep(_Raw):
    """A set-up or tear-down command: a shell line, or words to be executed as they are."""

    shell: str | None = None
    command: list[str] | None = None

    @model_validator(mode="after")
    def _one(self) -> RawStep:
        if (self.shell is None) == (self.command is None):
            raise ValueError('a step is a shell line "…" or { command = ["word", "word"] }')
        return self


Steps = Annotated[list[RawStep], BeforeValidator(_steps)]


class RawFlush(_Raw):
    """What happens to the page cache before each run."""

    mode: Literal["none", "files", "all"] = "none"
    files: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _consistent(self) -> RawFlush:
        if (self.mode == "files") != bool(self.files):
            raise ValueError('mode = "files" goes with files = ["…"], and files with mode = "files"')
        return self


class RawCounters(_Raw):
    events: list[str] = Field(default_factory=list)
    per_process: bool = True


class RawPrecision(_Raw):
    """Stop at the first planned look at which every interval is narrow enough (docs/method: precision stop)."""

    target: Fraction
    """Half-width of the shift's interval, as a fraction of the baseline's median."""
    looks: list[Annotated[int, Field(ge=20)]] = Field(min_length=1)

    @model_validator(mode="after")
    def _ascending(self) -> RawPrecision:
        if self.looks != sorted(set(self.looks)):
            raise ValueError("looks must ascend, such as [20, 40, 60]")
        return self


class RawReboot(_Raw):
    """What a boot of its own means, in a study with ``between = "reboot"``."""

    each: Literal["execution", "block"] = "execution"
    settle: Annotated[float, BeforeValidator(_duration), Field(ge=0, le=3600, allow_inf_nan=False)] = 10.0
    """Waited after a boot before its first run."""
    keep: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9:_.\\@-]+\.(service|socket|timer|target|mount)$")]] = Field(
        default_factory=list
    )
    """Units that go on beside the study; with any, the network interfaces are left as they are."""


class RawMeasure(_Raw):
    regex: str
    """With the groups ``value`` and, optionally, ``name`` and ``unit``; searched in the program's output."""

    @model_validator(mode="after")
    def _compiles(self) -> RawMeasure:
        try:
            groups = re.compile(self.regex).groupindex
        except re.error as error:
            raise ValueError(f"the regular expression does not compile: {error}") from None
        if "value" not in groups:
            raise ValueError("the regular expression needs (?P<value>…); (?P<name>…) and (?P<unit>…) are optional")
        return self


class RawWorkload(_WorkloadSettings):
    name: Name
    command: Words | None = None
    shell: str | None = None
    cwd: str | None = None
    env: dict[str, str] = Field(default_factory=dict)
    stdin: str = "null"
    stdout: str = "null"
    stderr: str | None = None
    setup: Steps = Field(default_factory=list)
    teardown: Steps = Field(default_factory=list)
    flush: RawFlush | None = None
    measure: RawMeasure | None = None
    metric: str | None = None
    drop_first: int | None = Field(default=None, ge=0, le=1_000_000)
    parameters: dict[ParameterName, Values] = Field(default_factory=dict)
    needs: list[str] = Field(default_factory=list)
    """Programs that must be there."""
    factors: dict[ParameterName, str] = Field(default_factory=dict)
    """What this workload is an instance of (``language = "java"``): reports on many workloads group by it."""
    policies: list[str] | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _one_command(self) -> RawWorkload:
        if (self.command is None) == (self.shell is None):
            raise ValueError('write either command = ["word", …] (or a string of words) or shell = "…"')
        return self


class RawPolicy(_PolicySettings):
    """A placement policy and what goes with it. The policy's own keys are checked by the policy language."""

    name: Name
    file: str | None = None
    frames: Any = None
    pages: Any = None
    fetch: Any = None
    via: Any = None
    backend: Any = None
    inherit: Any = None
    rule: Any = None
    env: dict[str, str] = Field(default_factory=dict)
    flush: RawFlush | None = None
    setup: Steps = Field(default_factory=list)
    teardown: Steps = Field(default_factory=list)

    @model_validator(mode="after")
    def _one_source(self) -> RawPolicy:
        if self.file is not None and self.inline():
            raise ValueError(f"file = … and the keys {', '.join(self.inline())} exclude each other")
        return self

    def inline(self) -> dict[str, Any]:
        """The keys of the policy language, as written in this table."""
        keys = ("frames", "pages", "fetch", "via", "backend", "inherit", "rule")
        return {key: getattr(self, key) for key in keys if getattr(self, key) is not None}


class RawQuick(_Raw):
    """What ``--quick`` puts in place of the study's own; parameters one by one."""

    executions: int | None = Field(default=None, ge=1, le=100_000)
    warmups: int | None = Field(default=None, ge=0, le=1000)
    benchmarks: list[str] | None = Field(default=None, min_length=1)
    measurements: int | None = Field(default=None, ge=1, le=100_000)
    drop_first: int | None = Field(default=None, ge=0, le=1_000_000)
    parameters: dict[ParameterName, Values] = Field(default_factory=dict)
    exclude: list[dict[str, Scalar]] | None = None


class RawStudy(_StudySettings):
    name: Name
    question: str = ""
    executions: int = Field(default=20, ge=1, le=100_000)
    seed: int = Field(default=1, ge=0, lt=1 << 64)
    warmups: int = Field(default=1, ge=0, le=1000)
    baseline: str | None = None
    metric: str = "wall_s"
    level: float = Field(default=0.95, gt=0.5, lt=1)
    test: Literal["pairs", "rank-sum", "stratified"] = "pairs"
    answer: Literal["each", "set"] | None = None
    """Each program by itself, or all as a set; None: each, where that can reach the level (study.answering)."""
    drop_first: int = Field(default=0, ge=0, le=1_000_000)
    setup_timeout: Duration = 600.0
    cwd: str | None = None
    env: dict[str, str] = Field(default_factory=dict)
    unset: list[str] = Field(default_factory=list)
    setup: Steps = Field(default_factory=list)
    teardown: Steps = Field(default_factory=list)
    flush: RawFlush = RawFlush()
    counters: RawCounters = RawCounters()
    precision: RawPrecision | None = None
    minutes: Minutes | None = None
    """Time for the runs, which decides the number of executions."""
    co_run: bool = False
    """The two conditions of each block run at once, on one processor: another question (docs/study.md)."""
    together: int = Field(default=1, ge=1, le=1000)
    """So many conditions, in the order of the file, run next to each other in each block."""
    between: Literal["nothing", "reboot"] = "nothing"
    """What happens between executions: with reboot each, or each block, is in a boot of its own (study.reboots)."""
    reboot: RawReboot | None = None
    parameters: dict[ParameterName, Values] = Field(default_factory=dict)
    skip_impossible: bool = False
    benchmarks: list[str] = Field(default_factory=list)
    measurements: int = Field(default=10, ge=1, le=100_000)
    """Of each execution of the bundled benchmarks that repeat an operation."""
    quick: RawQuick | None = None
    workload: list[RawWorkload]
    policy: list[RawPolicy] = Field(min_length=1)
    exclude: list[dict[str, Scalar]] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _benchmarks_are_workloads(cls, data: Any) -> Any:
        return {"workload": [], **data} if isinstance(data, dict) and "benchmarks" in data else data

    @model_validator(mode="after")
    def _something_to_run(self) -> RawStudy:
        if not self.workload and not self.benchmarks:
            raise ValueError('there is nothing to run: write [[workload]] tables, or benchmarks = ["native"]')
        return self

    @model_validator(mode="after")
    def _looks_are_at_programs(self) -> RawStudy:
        if self.precision is not None and self.answer == "set":
            raise ValueError(
                'answer = "set" and [precision] exclude each other: its looks are at the intervals of single programs; '
                'write executions = …, or answer = "each"'
            )
        return self

    @model_validator(mode="after")
    def _one_number(self) -> RawStudy:
        if self.precision is not None and "executions" in self.model_fields_set:
            raise ValueError(
                "executions and [precision] exclude each other: with a precision stop the last look is the maximum"
            )
        if self.minutes is not None and (self.precision is not None or "executions" in self.model_fields_set):
            other = "[precision]" if self.precision is not None else "executions"
            raise ValueError(f"minutes and {other} exclude each other: each decides how many executions there are")
        return self

    @model_validator(mode="after")
    def _boots_are_countable(self) -> RawStudy:
        if self.between != "reboot":
            if self.reboot is not None:
                raise ValueError('[reboot] needs between = "reboot"')
            return self
        if self.minutes is not None:
            raise ValueError('minutes and between = "reboot" exclude each other: boots take the time; write executions')
        if self.co_run:
            raise ValueError('co_run and between = "reboot" exclude each other')
        return self

    @model_validator(mode="after")
    def _groups_are_whole(self) -> RawStudy:
        if self.together > 1 and self.skip_impossible:
            raise ValueError(
                "together and skip_impossible exclude each other: a group would lack the conditions that are left out"
            )
        return self


_TABLES: dict[tuple[str, ...], type[BaseModel]] = {
    (): RawStudy,
    ("flush",): RawFlush,
    ("counters",): RawCounters,
    ("precision",): RawPrecision,
    ("quick",): RawQuick,
    ("reboot",): RawReboot,
    ("workload",): RawWorkload,
    ("workload", "flush"): RawFlush,
    ("workload", "measure"): RawMeasure,
    ("policy",): RawPolicy,
    ("policy", "flush"): RawFlush,
}


def read(path: Path) -> RawStudy:
    """The study written in ``path``. Raises :class:`SpecError` with every problem found."""
    return parse(toml_model.read_text(path, _instead(path)), path)


def _instead(path: Path) -> str:
    """The next command where ``path`` cannot be read as a study.toml."""
    if (path / "study.db").exists():
        return f"it is a study's directory; continue it with: pagelab study resume {quoted(path)}"
    if path.exists():
        return "name a study.toml; start one with: pagelab study init OTHER.toml"
    return f"start one with: pagelab study init {quoted(path)}"


def parse(text: str, path: Path | str) -> RawStudy:
    """The study in ``text``; ``path`` is only named in errors."""
    return toml_model.parse(text, path, RawStudy, _TABLES)
