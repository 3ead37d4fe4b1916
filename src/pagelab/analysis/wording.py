"""Writes numbers as text: few digits, a unit, and a sign for changes.

A difference has three significant digits, and never more than the values support. Sentences, tables and axis titles all
use these functions, so that a number reads the same everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from pagelab.analysis.model import Interval, Metric

MINUS = "−"
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
"""Units of time that programs report → their seconds."""
_BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def digits(value: float, significant: int = 3) -> str:
    """*value* with ``significant`` digits, separated thousands, a true minus sign, and no exponent below 1e15."""
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    decimals = max(0, significant - 1 - magnitude)
    rounded = round(value, significant - 1 - magnitude)
    if abs(rounded) >= 10 ** (magnitude + 1):
        decimals = max(0, decimals - 1)
    if decimals > 12 or abs(value) >= 1e15:
        return power_of_ten(value, significant)
    return f"{rounded:,.{decimals}f}".replace("-", MINUS)


def power_of_ten(value: float, significant: int = 2) -> str:
    """*value* as a multiple of a power of ten: ``1.5 × 10⁻¹¹``."""
    mantissa, exponent = f"{value:.{significant - 1}e}".split("e")
    return f"{mantissa.replace('-', MINUS)} × 10{str(int(exponent)).translate(_SUPERSCRIPT)}"


def percent(fraction: float, signed: bool = True) -> str:
    """A fraction as a percentage with one decimal; two below 1%, none from 1000% on."""
    value = fraction * 100
    decimals = 0 if abs(value) >= 1000 else (2 if abs(value) < 1 else 1)
    sign = "+" if signed and round(value, decimals) > 0 else ""
    text = f"{value:,.{decimals}f}"
    if float(text.replace(",", "")) == 0:
        text = text.lstrip("-")
    return f"{sign}{text}%".replace("-", MINUS)


def end(fraction: float, signed: bool = True) -> str:
    """An end of an interval as :func:`percent`, with one digit where that would show nothing on a side of 0."""
    value = fraction * 100
    if abs(value) >= _NOTHING and round(value, 2) == 0:
        return f"{'+' if signed and value > 0 else ''}{fixed(value)}%"
    return percent(fraction, signed)


_NOTHING = 1e-9
"""A distance that rounding may have made."""


def fixed(value: float, decimals: int = 2, about: float = 0.0) -> str:
    """*value* with these decimals; with more where it would read like *about*, which it is not: so the side on which it
    lies is seen.
    """
    apart = abs(value - about)
    if apart >= _NOTHING and float(f"{value:.{decimals}f}") == about:
        decimals = -math.floor(math.log10(apart))
    text = f"{value:,.{decimals}f}"
    return (text.lstrip("-") if float(text.replace(",", "")) == 0 else text).replace("-", MINUS)


def factor(ratio: float, significant: int = 2) -> str:
    """A ratio: two decimals near 1, and more where these would hide on which side of 1 it lies."""
    return fixed(ratio, about=1.0) if 0.1 <= ratio < 10 else digits(ratio, significant)


def share(fraction: float) -> str:
    """A share in percent; 100% appears only for the whole, and 0% only for nothing."""
    if 0 < fraction < 0.0005:
        return "<0.1%"
    if 0.9995 <= fraction < 1:
        return ">99.9%"
    return "100%" if fraction == 1 else percent(fraction, signed=False)


def p_value(p: float) -> str:
    """A p-value: ``p = 0.012``; below a thousandth as a power of ten, as far as the numbers of the machine reach."""
    if p < 1e-300:
        return "p < 10⁻³⁰⁰"
    if p >= 0.9995:
        return "p = 1"
    if p >= 0.1:
        return f"p = {p:.2f}"
    return f"p = {digits(p, 2)}" if p >= 0.001 else f"p = {power_of_ten(p)}"


def p_cell(p: float) -> str:
    """A p-value in a column of p: ``0.012``, ``< 10⁻³⁰⁰``."""
    return p_value(p).removeprefix("p ").removeprefix("= ")


def level(fraction: float) -> str:
    """A confidence level: ``95%``, ``99.9%``."""
    return f"{fraction * 100:.10g}%"


def size(bytes_: float) -> str:
    """A byte count in binary units."""
    value, unit = float(bytes_), 0
    while abs(value) >= 1024 and unit < len(_BINARY_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    text = f"{value:.0f}" if value == int(value) else digits(value)
    return f"{text} {_BINARY_UNITS[unit]}".replace("-", MINUS)


def page_size(bytes_: int) -> str:
    """A page size as policies write it: ``4K``, ``2M``, ``1G``."""
    for unit, letter in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if bytes_ >= unit and bytes_ % unit == 0:
            return f"{bytes_ // unit}{letter}"
    return str(bytes_)


def time_unit(values: Iterable[float]) -> tuple[float, str]:
    """The unit that suits the largest of *values* (seconds): (seconds per unit, its name)."""
    largest = max((abs(v) for v in values), default=1.0)
    for factor, name in _TIME_UNITS:
        if largest >= factor:
            return factor, name
    return _TIME_UNITS[-1]


def byte_unit(largest: float) -> tuple[float, str]:
    """The binary unit that suits *largest* bytes: (bytes per unit, its name)."""
    power = 0
    while largest >= 1024 ** (power + 1) and power < len(_BINARY_UNITS) - 1:
        power += 1
    return float(1024**power), _BINARY_UNITS[power]


def display_unit(metric: Metric, values: Sequence[float]) -> tuple[float, str]:
    """A divisor and a unit: values of *metric*, divided by the first, are in the second."""
    if metric.unit in SECONDS:
        unit_s = SECONDS[metric.unit]
        factor, name = time_unit([v * unit_s for v in values])
        return factor / unit_s, name
    largest = max((abs(v) for v in values), default=0.0)
    if metric.unit == "B":
        return byte_unit(largest)
    if metric.unit == "1":
        for factor, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
            if largest >= factor:
                return factor, name
        return 1.0, ""
    return 1.0, metric.unit


def in_common(metrics: Iterable[Metric]) -> str:
    """The common name of several programs' metrics: ``CPU time``, ``time``, ``the primary metric``."""
    found = {metric.label: metric for metric in metrics}
    if len(found) == 1:
        return next(iter(found))
    return "time" if all(metric.kind == "time" for metric in found.values()) else "the primary metric"


def quantity(value: float, metric: Metric, significant: int = 4) -> str:
    """One value of *metric* with its unit."""
    factor, unit = display_unit(metric, [value])
    if metric.unit == "1" and factor == 1 and value == round(value):
        return f"{value:,.0f}".replace("-", MINUS)
    return f"{digits(value / factor, significant)} {unit}".rstrip()


def interval_percent(interval: Interval) -> str:
    """An interval of fractions in percent: ``−38.8% to −37.5%``."""
    return f"{end(interval.low)} to {end(interval.high)}"


def interval_quantity(interval: Interval, metric: Metric) -> str:
    """An interval with both ends in one unit: ``−1.23 to 0.45 ms``.

    Each end has its own where one would be 0 in that of the other: ``−2,000 to 1.20 million``.
    """
    factor, unit = display_unit(metric, [interval.low, interval.high])
    low, high = interval.low / factor, interval.high / factor
    largest = max(abs(low), abs(high))
    decimals = max(0, 2 - math.floor(math.log10(largest))) if largest > 0 else 0
    if any(value and round(value, decimals) == 0 for value in (low, high)):
        return f"{quantity(interval.low, metric, 3)} to {quantity(interval.high, metric, 3)}"
    return f"{low:,.{decimals}f} to {high:,.{decimals}f} {unit}".rstrip().replace("-", MINUS)


def in_one_unit(values: Sequence[float], metric: Metric, significant: int = 4) -> list[str]:
    """Several values of *metric* in the unit of the largest; where they are far apart, each in a unit of its own."""
    sizes = [abs(value) for value in values if value]
    if sizes and max(sizes) > 10 * min(sizes):
        return [quantity(value, metric, significant) for value in values]
    factor, unit = display_unit(metric, values)
    return [f"{digits(value / factor, significant)} {unit}".rstrip() for value in values]


def count(n: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun: ``1 run``, ``2 runs``."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def capital(text: str) -> str:
    """The text as the beginning of a sentence."""
    return text[:1].upper() + text[1:]


def listing(items: Sequence[str]) -> str:
    """A list in words: ``a, b and c``."""
    if len(items) <= 1:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"
