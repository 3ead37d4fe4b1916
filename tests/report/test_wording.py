"""Numbers as readers see them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagelab.analysis import answer, wording
from pagelab.analysis.model import Interval, Metric

WALL = Metric("wall_s", "wall time", "s", "time")
NANOSECONDS = Metric("measure.x", "x", "ns", "measurement")
COUNT = Metric("counter.x", "x", "1", "counter")


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0"), (1.0, "1.00"), (-1234.5, "−1,230"), (0.00123456, "0.00123"), (999.6, "1,000"), (9.996, "10.0")],
)
def test_three_digits(value: float, shown: str) -> None:
    assert wording.digits(value) == shown


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300))
def test_digits_never_lie_by_more_than_half_a_unit_of_the_third_digit(value: float) -> None:
    shown = wording.digits(value).replace(",", "").replace("−", "-")
    if "×" in shown:
        mantissa, power = shown.split(" × 10")
        shown = f"{mantissa}e{power.translate(str.maketrans('⁻⁰¹²³⁴⁵⁶⁷⁸⁹', '-0123456789'))}"
    assert float(shown) == pytest.approx(value, rel=0.0051, abs=5e-324)


@pytest.mark.parametrize(
    ("fraction", "shown"),
    [(-0.381, "−38.1%"), (0.0, "0.00%"), (-0.00001, "0.00%"), (0.0084, "+0.84%"), (12.3, "+1,230%"), (1.0, "+100.0%")],
)
def test_percentages_have_a_sign_unless_they_are_nothing(fraction: float, shown: str) -> None:
    assert wording.percent(fraction) == shown


@pytest.mark.parametrize(
    ("fraction", "shown"), [(1.0, "100%"), (0.99999, ">99.9%"), (0.999, "99.9%"), (0.0, "0.00%"), (1e-9, "<0.1%")]
)
def test_all_is_said_only_of_all(fraction: float, shown: str) -> None:
    assert wording.share(fraction) == shown


@pytest.mark.parametrize(
    ("p", "shown"),
    [
        (2 / math.comb(40, 20), "p = 1.5 × 10⁻¹¹"),
        (0.0123, "p = 0.012"),
        (0.5, "p = 0.50"),
        (1.0, "p = 1"),
        (0.05, "p = 0.050"),
        (0.0, "p < 10⁻³⁰⁰"),
    ],
)
def test_p_values(p: float, shown: str) -> None:
    assert wording.p_value(p) == shown
    assert f"p {'' if '<' in shown else '= '}{wording.p_cell(p)}" == shown


def test_both_ends_of_an_interval_share_unit_and_decimals() -> None:
    assert wording.interval_quantity(Interval(-0.0485, 2.123, 0.95), WALL) == "−0.05 to 2.12 s"
    assert wording.interval_quantity(Interval(-2e-6, 3.4e-5, 0.95), WALL) == "−2.0 to 34.0 µs"
    assert wording.interval_quantity(Interval(0.0, 0.0, 0.95), WALL) == "0 to 0 ns"


@pytest.mark.parametrize(
    ("low", "high", "metric", "shown"),
    [
        (2_000, 1.2e6, COUNT, "2,000 to 1.20 million"),
        (-2_000, 1.2e6, COUNT, "−2,000 to 1.20 million"),
        (-1.2e6, -3, COUNT, "−1.20 million to −3"),
        (4e-8, 0.123, WALL, "40.0 ns to 123 ms"),
        (-4e-5, 0.123, WALL, "−40.0 µs to 123 ms"),
        (0.0, 1.2e6, COUNT, "0.00 to 1.20 million"),
    ],
)
def test_no_end_of_an_interval_is_rounded_to_nothing(low: float, high: float, metric: Metric, shown: str) -> None:
    """Regression: 2,000 to 1,200,000 faults were "0.00 to 1.20 million", and −2,000 "−0.00"."""
    assert wording.interval_quantity(Interval(low, high, 0.95), metric) == shown


@pytest.mark.parametrize(
    ("low", "high", "shown", "spanned"),
    [
        (-0.00004, 0.02, "−0.004% to +2.0%", "−0.004% to +2.0%"),
        (0.00004, 0.005, "+0.004% to +0.50%", "0.004–0.50%"),
        (-0.005, -0.00004, "−0.50% to −0.004%", "0.004–0.50%"),
        (0.0, 0.02, "0.00% to +2.0%", "0.00% to +2.0%"),
        (0.001, 0.02, "+0.10% to +2.0%", "0.10–2.0%"),
        (-3e-10, 0.02, "−0.00000003% to +2.0%", "−0.00000003% to +2.0%"),
    ],
)
def test_the_side_of_0_on_which_an_interval_ends_is_seen(low: float, high: float, shown: str, spanned: str) -> None:
    """Regression: −0.004% to +2% read like 0 to 2%, and 0.004 to 0.5% like 0 to 0.5%."""
    assert wording.interval_percent(Interval(low, high, 0.95)) == shown
    assert answer.span(Interval(low, high, 0.95)) == spanned


@pytest.mark.parametrize(
    ("ratio", "shown"),
    [
        (1.004, "1.004"),
        (0.996, "0.996"),
        (1.0, "1.00"),
        (1.35, "1.35"),
        (0.99996, "0.99996"),
        (12.3, "12"),
        (0.05, "0.050"),
    ],
)
def test_the_side_of_1_on_which_a_ratio_lies_is_seen(ratio: float, shown: str) -> None:
    """Regression: the spreads 1.004 to 1.35 and 0.996 to 1.35 were both "1.00–1.35"."""
    assert wording.factor(ratio) == shown


@given(st.floats(-100, 100, allow_subnormal=False), st.sampled_from([0.0, 1.0]), st.integers(0, 3))
def test_what_is_rounded_stays_on_its_side(value: float, about: float, decimals: int) -> None:
    shown = float(wording.fixed(value, decimals, about).replace(wording.MINUS, "-"))
    assert shown == pytest.approx(value, abs=0.5000001 * 10**-decimals)
    if abs(value - about) >= 1e-9 and decimals:
        assert math.copysign(1, shown - about) == math.copysign(1, value - about)
        assert shown != about


@pytest.mark.parametrize(
    ("value", "metric", "shown"),
    [
        (1.5, WALL, "1.500 s"),
        (0.0021, WALL, "2.100 ms"),
        (29_680_163.0, NANOSECONDS, "29.68 ms"),
        (12.0, NANOSECONDS, "12.00 ns"),
        (2.5e9, COUNT, "2.500 billion"),
        (17.0, COUNT, "17"),
        (123456.5, COUNT, "123,500"),
    ],
)
def test_quantities_choose_a_unit_that_reads_well(value: float, metric: Metric, shown: str) -> None:
    assert wording.quantity(value, metric) == shown


@pytest.mark.parametrize(
    ("size", "shown"), [(4096, "4K"), (2 << 20, "2M"), (1 << 30, "1G"), (65536, "64K"), (1000, "1000")]
)
def test_page_sizes_as_policies_write_them(size: int, shown: str) -> None:
    assert wording.page_size(size) == shown


def test_lists_and_counts() -> None:
    assert wording.listing(["a", "b", "c"]) == "a, b and c"
    assert wording.listing(["a"]) == "a"
    assert wording.listing([]) == ""
    assert wording.count(1, "run") == "1 run"
    assert wording.count(2, "policy", "policies") == "2 policies"
