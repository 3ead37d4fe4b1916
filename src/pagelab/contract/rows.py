"""The rows of two generated tables: a setting of a run, and a strategy that places frames. Both are named tuples:
every run imports them before its program starts, and dataclasses take long to import.

The tables are :mod:`pagelab.contract.settings`, from ``crates/contract``, and :mod:`pagelab.contract.strategies`, from
``crates/abi``.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

KEEP = "keep"
"""The word of study.toml for a setting that stays as it is."""
_SWITCH = {"on": True, "off": False}
_UNITS = {"seconds": "_s", "size": "_bytes"}

Kind = Literal["switch", "words", "cpus", "number", "seconds", "size", "text"]


class RunSetting(NamedTuple):
    """One setting of a run."""

    field: str
    """Its field in the request, and in the record's ``settings``."""
    kind: Kind
    words: tuple[str, ...] = ()
    """The allowed words of a choice."""
    default: str | None = None
    """The word that holds without a request; None: the setting stays as it is."""
    study: tuple[str, ...] = ()
    """Tables of study.toml that may contain it: ``study`` (the top), ``workload``, ``policy``."""
    flag: str | None = None
    """Its option of ``pagelab run``, without dashes."""
    metavar: str = ""
    help: str = ""
    compared: str = ""
    """Help of commands that compare two values (``pagelab try``, ``pagelab compare``); empty: they do not offer it."""
    short: str = ""
    """Its name before a value that is compared."""
    label: str = ""
    """Its name in reports; empty: that of the field."""

    @property
    def key(self) -> str:
        """Its key in study.toml: the field without its unit."""
        return self.field.removesuffix(_UNITS.get(self.kind, ""))

    def asked(self, word: Any) -> Any:
        """The request's value for a word or value of study.toml, or for the value of a flag."""
        if self.kind == "switch":
            return _SWITCH.get(word)
        if self.kind == "cpus":
            return list(word or ())
        return None if word == KEEP and self.default is None else word

    def said(self, value: Any) -> Any:
        """The word or value of study.toml for the request's ``value``; None without a request."""
        if self.kind == "switch":
            return None if value is None else "on" if value else "off"
        return value or None if self.kind == "cpus" else value

    def typed(self, value: Any) -> str | None:
        """The flag's text for the request's ``value``; None without a request."""
        said = self.said(value)
        if said is None:
            return None
        return ",".join(map(str, said)) if self.kind == "cpus" else f"{said:g}" if self.kind == "seconds" else str(said)


def said_type(one: RunSetting) -> Any:
    """The type of what :meth:`RunSetting.said` returns, without None."""
    plain = {"cpus": list[int], "number": int, "size": int, "seconds": float, "text": str}
    return plain[one.kind] if one.kind in plain else Literal[*one.words]


class Strategy(NamedTuple):
    """One strategy."""

    name: str
    """Its word in policies and records."""
    summary: str
    """Its effect, as part of a sentence."""
    example: str
    """Its example in help texts."""
    parameters: tuple[tuple[str, str], ...]
    """Its parameters, besides those that every strategy takes: the word, and its values with the default."""
