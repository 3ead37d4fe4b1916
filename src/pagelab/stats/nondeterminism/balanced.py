"""Checks that configurations are equally frequent, since percentages represent the frequent ones (ALLOC 4.3)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from pagelab.stats.refusal import Refusal, StatsRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pagelab.stats.nondeterminism.data import Experiment


@dataclass(frozen=True, slots=True)
class Balance:
    """Numbers of groups at each level of each factor, and the missing combinations."""

    groups: int
    levels: Mapping[str, Mapping[str, int]]
    """Factor → level → number of groups."""
    incomplete: Mapping[str, tuple[str, ...]]
    """Group → the conditions that it lacks."""
    missing: tuple[Mapping[str, str], ...]
    """The first hundred combinations of levels that no group has."""
    missing_count: int

    @property
    def unbalanced(self) -> tuple[str, ...]:
        """Factors with a level that more groups have than another."""
        return tuple(factor for factor, counts in self.levels.items() if len(set(counts.values())) > 1)

    @property
    def is_balanced(self) -> bool:
        return not self.unbalanced and not self.incomplete


def balance(experiments: Iterable[Experiment]) -> Balance:
    """Counts groups by factor level. Experiments of one group must have the same factors with the same levels."""
    factors: dict[str, Mapping[str, str]] = {}
    conditions: dict[str, list[str]] = {}
    for one in experiments:
        known = factors.setdefault(one.group, one.factors)
        if dict(known) != dict(one.factors):
            message = (
                f"group {one.group!r}: {dict(known)} and {dict(one.factors)}; its experiments differ in condition only"
            )
            raise StatsRefusedError(Refusal.DUPLICATE, message)
        conditions.setdefault(one.group, []).append(one.condition)
    if not factors:
        raise StatsRefusedError(Refusal.EMPTY, "no experiments")
    names = list(dict.fromkeys(name for found in factors.values() for name in found))
    for group, found in factors.items():
        lacking = [name for name in names if name not in found]
        if lacking:
            raise StatsRefusedError(Refusal.EMPTY, f"group {group!r}: no level of {', '.join(lacking)}")
    levels = {name: Counter(found[name] for found in factors.values()) for name in names}
    everyone = dict.fromkeys(name for found in conditions.values() for name in found)
    incomplete = {
        group: tuple(name for name in everyone if name not in found)
        for group, found in conditions.items()
        if len(found) < len(everyone)
    }
    seen = {tuple(found[name] for name in names) for found in factors.values()}
    total = 1
    for counts in levels.values():
        total *= len(counts)
    missing = []
    if total > len(seen):
        for combination in product(*(sorted(levels[name]) for name in names)):
            if combination not in seen:
                missing.append(dict(zip(names, combination, strict=True)))
                if len(missing) == 100:
                    break
    plain = {name: dict(sorted(counts.items())) for name, counts in levels.items()}
    return Balance(len(factors), plain, incomplete, tuple(missing), total - len(seen))
