"""Imports results of other tools into a store, with their origin: PREPAGE-style CSV and hyperfine's JSON.

Values that the source does not give are null: an imported run has no record, no machine, and no order that can be
trusted.
"""

from __future__ import annotations

import csv
import hashlib
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, overload

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ..contract.request import Request
from .answering import reachability, tested_or_described
from .errors import Problem, SpecError, StudyError
from .lock import DirectoryLock
from .plan import Condition, Plan, digest_of
from .prepare import check_destination
from .schedule import Slot
from .store import RunResult, Store
from .toml_text import dotted


class ImportedRun(BaseModel):
    """What the store keeps of one imported execution instead of a record. Null is "the source does not say"."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_: Literal["pagelab.imported/1"] = Field(default="pagelab.imported/1", alias="schema")
    source: str
    source_sha256: str
    place: str
    """Where in the source: ``line 12``, ``results[0].times[3]``."""
    wall_s: float | None
    """Null for simulated executions, which take no time of their own."""
    user_s: float | None = None
    system_s: float | None = None
    peak_rss_bytes: int | None = None
    exit_code: int | None = None
    columns: dict[str, str] = Field(default_factory=dict)
    """The row as it stood, for CSV."""


@dataclass(frozen=True)
class Sample:
    """One execution as read from the source: its condition and its run."""

    workload: str
    policy: str
    argv: list[str]
    run: ImportedRun
    parameters: dict[str, str] = field(default_factory=dict)
    measurements: Sequence[tuple[str, float, str]] = ()
    """Its measurements: name, value, unit (``1``: a count)."""


@dataclass(frozen=True)
class Columns:
    """The meaning of a CSV's columns; None: decided from the header and the values."""

    time: str | None = None
    factor: str | None = None
    """The column whose values are compared (PREPAGE's ``buffering``)."""
    workload: str | None = None
    execution: str | None = None
    """The column that numbers executions; rows with the same number are measurements of one execution. None: the first
    column with a name of ``EXECUTION``."""
    labels: dict[str, str] = field(default_factory=dict)
    """Value in the file → label in the report, such as ``0`` → ``off``."""


EXECUTION = ("execution", "run", "process", "invocation", "fork")
"""Names of columns that number executions, in upper or lower case: rows with the same value belong to one execution."""
MEASUREMENT = ("measurement", "iteration", "repetition")
"""Names of columns that number measurements inside an execution."""


def read_csv(path: Path, columns: Columns) -> list[Sample]:
    """The executions in a CSV with a header, factor columns and a time column in seconds.

    A row is an execution. With an execution column, the rows of one condition with the same value in it are the
    measurements of one execution, in the order of the file; the execution has no time of its own. Raises SpecError with
    file and line.
    """
    digest = _digest(path)
    rows = _rows(path)
    _, header = next(rows)
    time, factor, execution, others = _roles(path, header, columns)
    places = [header.index(name) for name in others]
    workload = header.index(columns.workload) if columns.workload else None
    at_time, at_factor = header.index(time), header.index(factor)
    at_execution = header.index(execution) if execution else None
    found: dict[tuple[str, ...], _Rows] = {}
    for line, row in rows:
        if len(row) != len(header):
            raise SpecError(path, [Problem("", f"{len(row)} values where the header has {len(header)}", line)])
        labels = [path.stem if workload is None else row[workload]]
        labels += [f"{header[place]}={row[place]}" for place in places]
        level = columns.labels.get(row[at_factor], row[at_factor])
        key = (" ".join(labels), level, f"line {line}" if at_execution is None else row[at_execution])
        same = found.get(key)
        if same is None:
            same = found[key] = _Rows(dict(zip(header, row, strict=True)), line)
        same.times.append(_seconds(row[at_time], path, time, line))
        same.last = line
    if not found:
        raise SpecError(path, [Problem("", "no rows after the header")])
    single = all(len(same.times) == 1 for same in found.values())
    samples = []
    for (label, level, _), same in found.items():
        run = ImportedRun(
            source=str(path),
            source_sha256=digest,
            place=f"line {same.first}" if same.first == same.last else f"line {same.first} to {same.last}",
            wall_s=same.times[0] if single else None,
            columns=same.values if single else _of_execution(same.values, time),
        )
        measurements = () if single else _Times(time, same.times)
        samples.append(Sample(label, level, [], run, {name: same.values[name] for name in others}, measurements))
    return samples


@dataclass
class _Rows:
    """Rows of one execution: the values of the first row, the lines of all rows, and their times."""

    values: dict[str, str]
    first: int
    last: int = 0
    times: array[float] = field(default_factory=lambda: array("d"))


@dataclass(frozen=True)
class _Times(Sequence[tuple[str, float, str]]):
    """Measurements of one name in seconds, stored in eight bytes each."""

    name: str
    times: array[float]

    def __len__(self) -> int:
        return len(self.times)

    @overload
    def __getitem__(self, index: int) -> tuple[str, float, str]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[str, float, str]]: ...
    def __getitem__(self, index: int | slice) -> tuple[str, float, str] | Sequence[tuple[str, float, str]]:
        if isinstance(index, slice):
            return _Times(self.name, self.times[index])
        return self.name, self.times[index], "s"


def _of_execution(values: Mapping[str, str], time: str) -> dict[str, str]:
    """The values of a row that hold for its whole execution."""
    return {name: value for name, value in values.items() if name != time and name.lower() not in MEASUREMENT}


def guessed_time(path: Path, columns: Columns) -> str | None:
    """The last column, where it is taken for seconds although nothing says so; else None."""
    if columns.time is not None:
        return None
    _, header = next(_rows(path))
    return None if "time" in header else header[-1]


def metric_of(samples: Sequence[Sample]) -> str:
    """The metric that is compared by default: wall time, or the measurements where executions have these instead."""
    names = {name for sample in samples for name, _, _ in sample.measurements if sample.run.wall_s is None}
    return f"measure.{names.pop()}" if len(names) == 1 else "wall_s"


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The header and the rows that are not empty, with their line numbers."""
    line = 1
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, skipinitialspace=True)
            yield 1, [name.strip() for name in next(reader, [])]
            for row in reader:
                line = reader.line_num
                if row:
                    yield line, [value.strip() for value in row]
    except csv.Error as error:
        raise SpecError(path, [Problem("", f"not CSV: {error}", line)]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from None


def _roles(path: Path, header: list[str], columns: Columns) -> tuple[str, str, str | None, list[str]]:
    """The columns of time, compared factor and execution, and the other factors, within whose values it compares."""

    def known(name: str, option: str) -> str:
        if name not in header:
            raise SpecError(path, [Problem(option, f'no column "{name}"; allowed: {", ".join(header)}', 1)])
        return name

    if len(header) < 2 or len(set(header)) != len(header) or "" in header:
        raise SpecError(path, [Problem("", "the first line must name each column, such as: buffering,time", 1)])
    time = known(columns.time or ("time" if "time" in header else header[-1]), "--time")
    named = (time, columns.workload, columns.factor)
    free = [name for name in header if name not in named]
    execution = next((name for name in free if name.lower() in EXECUTION), None)
    if columns.execution:
        execution = known(columns.execution, "--execution")
        if execution in named:
            raise SpecError(path, [Problem("--execution", f'column "{execution}" has another meaning already', 1)])
    places = [name for name in free if name.lower() in MEASUREMENT]
    if places and execution is None:
        message = f'column "{places[0]}" numbers measurements: name the column of their executions'
        raise SpecError(path, [Problem("--execution", message, 1)])
    rest = [name for name in header if name not in (time, columns.workload, execution, *places)]
    if columns.workload:
        known(columns.workload, "--workload")
    factor = known(columns.factor or (rest[0] if rest else ""), "--factor")
    return time, factor, execution, [name for name in rest if name != factor]


def _seconds(text: str, path: Path, column: str, line: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise SpecError(path, [Problem(column, f'"{text}" is no time in seconds', line)])
    return value


class _HyperfineResult(BaseModel):
    """The used keys of an entry of hyperfine's ``results``; newer versions may add keys."""

    command: str
    times: list[Annotated[float, Field(ge=0, allow_inf_nan=False)]]
    exit_codes: list[int | None] | None = None
    memory_usage_byte: list[int] | None = None
    parameters: dict[str, str | int | float] | None = None

    @model_validator(mode="after")
    def _as_many(self) -> _HyperfineResult:
        for values in (self.exit_codes, self.memory_usage_byte):
            if values and len(values) != len(self.times):
                raise ValueError(f"{len(values)} values beside {len(self.times)} times")
        return self


class _Hyperfine(BaseModel):
    results: list[_HyperfineResult]


def read_hyperfine(path: Path) -> list[Sample]:
    """The executions in hyperfine's ``--export-json``: one for each of ``results[].times``. Raises SpecError.

    A command that occurs in several results becomes several numbered conditions: an A/A check, not one sample.
    """
    text, digest = _read(path)
    try:
        results = _Hyperfine.model_validate_json(text).results
    except ValidationError as error:
        first = error.errors()[0]
        where = dotted(tuple(first["loc"]))
        raise SpecError(path, [Problem(where, f"not the JSON of hyperfine --export-json: {first['msg']}")]) from None
    samples = []
    labels = _hyperfine_labels(results)
    for number, result in enumerate(results):
        parameters = {name: str(value) for name, value in (result.parameters or {}).items()}
        for index, wall_s in enumerate(result.times):
            run = ImportedRun(
                source=str(path),
                source_sha256=digest,
                place=f"results[{number}].times[{index}]",
                wall_s=wall_s,
                exit_code=result.exit_codes[index] if result.exit_codes else None,
                peak_rss_bytes=result.memory_usage_byte[index] if result.memory_usage_byte else None,
            )
            samples.append(Sample(path.stem, labels[number], [result.command], run, parameters))
    if not samples:
        raise SpecError(path, [Problem("results", "holds no times")])
    return samples


def _hyperfine_labels(results: Sequence[_HyperfineResult]) -> list[str]:
    """A label for each result: the command; where it occurs several times, with its parameters, else with a number."""
    labels = [one.command for one in results]
    for label in {label for label in labels if labels.count(label) > 1}:
        places = [i for i, one in enumerate(results) if one.command == label]
        texts = [
            " ".join([label, *(f"{name}={value}" for name, value in (results[i].parameters or {}).items())])
            for i in places
        ]
        for i, text in zip(places, texts, strict=True):
            labels[i] = text
    counts: dict[str, int] = {}
    numbered = []
    for label in labels:
        counts[label] = counts.get(label, 0) + 1
        numbered.append(f"{label} #{counts[label]}" if labels.count(label) > 1 else label)
    return numbered


def _read(path: Path) -> tuple[str, str]:
    try:
        content = path.read_bytes()
        return content.decode("utf-8-sig"), hashlib.sha256(content).hexdigest()
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from None


def _digest(path: Path) -> str:
    """SHA-256 of a file, which may be large."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError | UnicodeDecodeError) -> SpecError:
    reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
    return SpecError(path, [Problem("", f"cannot read: {reason}")])


def import_into(
    directory: Path,
    samples: list[Sample],
    *,
    origin: Path,
    name: str,
    question: str = "",
    baseline: str | None = None,
    level: float = 0.95,
    metric: str = "wall_s",
) -> Plan:
    """Makes a store in ``directory`` with the samples as runs, in the order of the file. Raises StudyError.

    ``metric``: the compared metric, ``wall_s`` or ``measure.NAME`` of the samples' measurements.
    """
    policies = list(dict.fromkeys(sample.policy for sample in samples))
    baseline = policies[0] if baseline is None else baseline
    if baseline not in policies:
        raise StudyError(f'--baseline: no level is called "{baseline}"; allowed: {", ".join(policies)}')
    conditions = _conditions(samples, baseline, metric)
    counts = [sum(_key(sample) == key for sample in samples) for key in conditions]
    plan = Plan(
        name=name,
        question=question,
        executions=max(counts),
        seed=0,
        warmups=0,
        baseline=baseline,
        metric=metric,
        level=level,
        conditions=list(conditions.values()),
        step_timeout_s=1.0,
        digest=digest_of([origin.read_bytes()]),
        inputs={str(origin.resolve()): samples[0].run.source_sha256},
    )
    alike = len(set(counts)) == 1
    plan = tested_or_described(plan) if alike else plan
    directory.mkdir(parents=True, exist_ok=True)
    with DirectoryLock(directory):
        check_destination(directory, imported=True)
        slots = _slots(samples, conditions)
        runs = [(_result(s), s.run.model_dump_json(by_alias=True), s.measurements) for s in samples]
        with Store.create(directory, plan, slots, "", {"origin": str(origin)}, imported=runs) as store:
            if alike:
                for warning in reachability(plan):
                    store.put_event("warning", warning.model_dump(mode="json"))
    return plan


def _key(sample: Sample) -> tuple[str, str]:
    return sample.workload, sample.policy


def _conditions(samples: Iterable[Sample], baseline: str, metric: str) -> dict[tuple[str, str], Condition]:
    conditions: dict[tuple[str, str], Condition] = {}
    for sample in samples:
        if _key(sample) not in conditions:
            conditions[_key(sample)] = Condition(
                index=len(conditions),
                name=f"{sample.workload}/{sample.policy}",
                workload=sample.workload,
                policy=sample.policy,
                workload_name=sample.workload,
                policy_name=sample.policy,
                baseline=sample.policy == baseline,
                parameters=dict(sample.parameters),
                request=Request(argv=sample.argv, cwd=""),
                metric=metric,
            )
    return conditions


def _slots(samples: list[Sample], conditions: dict[tuple[str, str], Condition]) -> list[Slot]:
    """The places in the order of the file. The n-th execution of a condition is in block n, whenever it ran."""
    counts: dict[int, int] = {}
    slots = []
    for position, sample in enumerate(samples):
        condition = conditions[_key(sample)].index
        number = counts.get(condition, 0)
        counts[condition] = number + 1
        slots.append(Slot(position, number, condition, number))
    return slots


def _result(sample: Sample) -> RunResult:
    failed = sample.run.exit_code not in (None, 0)
    message = f"ended with exit code {sample.run.exit_code}" if failed else None
    return RunResult("failed" if failed else "ok", None, None, None, message)


Format = Literal["csv", "hyperfine"]


def guess_format(path: Path) -> Format:
    """The format of a file, by the ending of its name, else by its first character. Raises SpecError."""
    if path.suffix.lower() in (".csv", ".tsv", ".txt"):
        return "csv"
    return "hyperfine" if path.suffix.lower() == ".json" or _read(path)[0].lstrip()[:1] == "{" else "csv"
