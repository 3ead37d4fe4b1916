"""The file of a sweep as written: parsed and checked for shape, nothing resolved (docs/simulate-sweep)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from ...errors import BadInputError
from ...sizes import numbers, size_bytes
from ...study import toml_model
from ..page_faults import PAPER_COLOURS, PAPER_MEMORY_MIB, coloring

_T = TypeVar("_T")


def _several(value: Any) -> Any:
    return list(value) if isinstance(value, list | tuple) else [value]


def _size(value: Any) -> int:
    return _accepted(lambda: size_bytes(value, "size"))


def _colors(value: Any) -> Any:
    return _accepted(lambda: numbers(value, "colors")) if isinstance(value, str) else _several(value)


def _coloring(value: str) -> str:
    name, _ = _accepted(lambda: coloring(value, "coloring"))
    if name not in ("modulo", "pid-hashed", "xor"):
        raise ValueError(f"{value!r}; allowed: modulo, pid-hashed, xor:MASK,MASK…")
    return value


def _accepted(make: Callable[[], _T]) -> _T:
    try:
        return make()
    except BadInputError as error:
        raise ValueError(str(error)) from None


def _seeds(value: Any) -> Any:
    return list(range(value)) if isinstance(value, int) and not isinstance(value, bool) and value > 0 else value


def _distinct(values: list[_T]) -> list[_T]:
    if len({str(value) for value in values}) < len(values):
        raise ValueError("a value is there twice")
    return values


def _listed(one: Any) -> BeforeValidator:
    """A validator that accepts a single value in place of a list."""
    return BeforeValidator(_several, json_schema_input_type=list[one] | one)


_FULL = Field(min_length=1)
_ONCE = AfterValidator(_distinct)
Size = Annotated[int, BeforeValidator(_size, json_schema_input_type=int | str), Field(gt=0)]
Share = Annotated[float, Field(ge=0, lt=1)]
Turnover = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Policy = Literal["lru", "fifo", "clock", "random", "opt"]
Words = Annotated[list[str], _listed(str), _FULL, _ONCE]
Sizes = Annotated[list[Size], _listed(int | str), _FULL, _ONCE]
Shares = Annotated[list[Share], _listed(float), _FULL, _ONCE]
Turnovers = Annotated[list[Turnover], _listed(float), _FULL, _ONCE]
Flags = Annotated[list[bool], _listed(bool), _FULL, _ONCE]
Policies = Annotated[list[Policy], _listed(Policy), _FULL, _ONCE]
Colorings = Annotated[list[Annotated[str, AfterValidator(_coloring)]], _listed(str), _FULL, _ONCE]
Colors = Annotated[
    list[Annotated[int, Field(ge=1)]],
    BeforeValidator(_colors, json_schema_input_type=list[int] | int | str),
    _FULL,
    _ONCE,
]
Seeds = Annotated[
    list[Annotated[int, Field(ge=0, lt=1 << 63)]],
    BeforeValidator(_seeds, json_schema_input_type=list[int] | int),
    Field(min_length=1, max_length=100_000),
    _ONCE,
]


class _Raw(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class RawTable(_Raw):
    """The common keys of every simulator's table."""

    name: str | None = Field(default=None, min_length=1, max_length=80)
    traces: Words | None = None
    seeds: Seeds | None = None


class RawPaging(RawTable):
    """Page faults with colours; ``memory`` in bytes."""

    colors: Colors = list(PAPER_COLOURS)
    memory: Sizes | Literal["all"] = [size << 20 for size in PAPER_MEMORY_MIB]
    policies: Policies = ["lru"]
    coloring: Colorings = ["modulo"]
    page_size: Sizes = [4096]
    sample: float | None = Field(default=None, gt=0, le=1)
    sample_pages: int | None = Field(default=None, ge=64)

    @property
    def sampled(self) -> bool:
        return self.sample is not None or self.sample_pages is not None

    @model_validator(mode="after")
    def _consistent(self) -> RawPaging:
        if self.sampled and self.policies != ["lru"]:
            raise ValueError('samples are for policies = ["lru"] only')
        if self.memory == "all" and (self.sampled or self.policies != ["lru"]):
            raise ValueError('memory = "all" needs policies = ["lru"] without a sample; name the sizes: ["64M", "1G"]')
        if any(size & (size - 1) for size in self.page_size):
            raise ValueError("page_size: powers of two, such as 4K, 64K, 2M")
        return self


class _Machine(RawTable):
    """The simulated machine, as :class:`~pagelab.simulate.placements.History`; ``memory`` in bytes."""

    memory: Sizes = [1 << 30]
    used: Shares = [0.4]
    cached: Shares = [0.5]
    turnover: Turnovers = [2.0]


class RawCache(_Machine):
    """Physically indexed caches under each placement."""

    hierarchy: Words
    frames: Words | None = None
    policy: Words | None = None


class RawTlb(_Machine):
    """Translation with each choice of page sizes."""

    processor: Words
    pages: Words | None = None
    policy: Words | None = None
    regions: str | None = None
    caches: Flags = [False]


class RawSweep(_Raw):
    name: str | None = Field(default=None, min_length=1, max_length=80)
    traces: Words | None = None
    seeds: Seeds = list(range(20))
    seeds_per_task: int = Field(default=10, ge=1, le=10_000)
    paging: list[RawPaging] = []
    cache: list[RawCache] = []
    tlb: list[RawTlb] = []

    @model_validator(mode="after")
    def _something_to_do(self) -> RawSweep:
        tables: list[RawTable] = [*self.paging, *self.cache, *self.tlb]
        if not tables:
            raise ValueError("there is nothing to simulate: write [[paging]], [[cache]] or [[tlb]] tables")
        if self.traces is None and any(table.traces is None for table in tables):
            raise ValueError('there are no traces: write traces = ["*.trace"] before the first table, or in each')
        return self


_TABLES: dict[tuple[str, ...], type[BaseModel]] = {
    (): RawSweep,
    ("paging",): RawPaging,
    ("cache",): RawCache,
    ("tlb",): RawTlb,
}


def read(path: Path) -> tuple[RawSweep, str]:
    """The sweep written in ``path``, and its text. Raises :class:`~pagelab.study.errors.SpecError`."""
    text = toml_model.read_text(path, "docs/simulate-sweep.md has an example")
    return toml_model.parse(text, path, RawSweep, _TABLES), text


def of_mapping(data: Mapping[str, Any]) -> RawSweep:
    """The sweep in a mapping, as :func:`read`. Raises :class:`~pagelab.study.errors.SpecError`."""
    return toml_model.validate(data, "sweep", RawSweep, _TABLES)
