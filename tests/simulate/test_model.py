"""The analytical model of colours: known values, 40-digit arithmetic, and random allocation."""

from __future__ import annotations

import math

import mpmath
import pytest

from pagelab.errors import BadInputError
from pagelab.simulate.analytical_model import Convention, effective_memory, expected_allocations, monte_carlo, table


def precise(colours: int, pages: int, digits: int = 40) -> mpmath.mpf:
    """E(c, k) as c ∫ Q(k+1, x)^c dx in high precision: the incomplete gamma function of mpmath, its own quadrature."""
    with mpmath.workdps(digits):
        a = mpmath.mpf(pages + 1)
        spread = mpmath.sqrt(a)
        edges = [max(mpmath.mpf(0), a + spread * step) for step in range(-16, 17)]
        edges = [mpmath.mpf(0), *sorted(set(edges) - {mpmath.mpf(0)}), a + spread * 30 + 60]
        survive = lambda x: mpmath.gammainc(a, x, regularized=True) ** colours  # noqa: E731 (an integrand)
        return colours * mpmath.quad(survive, edges)


@pytest.mark.parametrize("pages", [1, 2, 4, 17, 64])
@pytest.mark.parametrize("colours", [2, 3, 64, 365])
def test_the_integral_agrees_with_forty_digits(colours: int, pages: int) -> None:
    expected = precise(colours, pages)
    assert abs(expected_allocations(colours, pages) / expected - 1) < 1e-11


def precise_for_many(colours: int, pages: int) -> mpmath.mpf:
    """The same for k too large for mpmath's incomplete gamma function: P's series, behind a factor with 25 digits."""
    with mpmath.workdps(25):
        a, spread = mpmath.mpf(pages + 1), mpmath.sqrt(pages + 1)
        factorial = mpmath.loggamma(a + 1)

        def lower(x: mpmath.mpf) -> mpmath.mpf:
            terms, n = [1.0], float(a)
            while terms[-1] > 1e-18:
                n += 1
                terms.append(terms[-1] * float(x) / n)
            return mpmath.exp(a * mpmath.log(x) - x - factorial) * math.fsum(terms)

        survive = lambda z: (1 - lower(a + spread * z)) ** colours  # noqa: E731 (an integrand)
        return colours * (a - 12 * spread + spread * mpmath.quad(survive, list(range(-12, 15)), maxdegree=3))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("colours", "pages"), [(2, 4096), (4096, 4096), (2, 100_000), (64, 1_000_000), (4096, 10_000_000)]
)
def test_the_integral_agrees_for_many_pages_too(colours: int, pages: int) -> None:
    assert abs(expected_allocations(colours, pages) / precise_for_many(colours, pages) - 1) < 1e-11


def by_recursion(colours: int, pages: int) -> float:
    """E(c, k) for few colours, from the probability that no colour has more than k of n requests, summed over n."""
    ways = {0: 1}  # exact: n! times the coefficient of x^n in S_k(x)^c, built one colour at a time
    from math import comb

    for _ in range(colours):
        more: dict[int, int] = {}
        for n, count in ways.items():
            for j in range(pages + 1):
                more[n + j] = more.get(n + j, 0) + count * comb(n + j, j)
        ways = more
    return float(mpmath.fsum(mpmath.mpf(count) / mpmath.mpf(colours) ** n for n, count in ways.items()))


@pytest.mark.parametrize(("colours", "pages"), [(2, 1), (2, 7), (3, 3), (4, 5), (7, 2), (12, 4), (365, 1)])
def test_the_integral_is_the_mean_of_its_definition(colours: int, pages: int) -> None:
    """Not the integral again: the distribution of the request that is refused."""
    assert expected_allocations(colours, pages) == pytest.approx(by_recursion(colours, pages), rel=1e-12)


def test_the_birthday_number() -> None:
    assert expected_allocations(365, 1) == pytest.approx(24.616585894598855, rel=1e-14)


def test_the_three_conventions() -> None:
    shown = [round(effective_memory(64, 4, one), 3) for one in Convention]
    assert shown == [0.327, 0.323, 0.213]
    assert effective_memory(1, 100, Convention.REFUSED) == pytest.approx(1.01)
    assert effective_memory(1, 100, Convention.BEFORE) == pytest.approx(1)
    assert effective_memory(1, 100, Convention.FILLED) == pytest.approx(1)


@pytest.mark.parametrize("convention", list(Convention))
@pytest.mark.parametrize(("colours", "pages"), [(2, 30), (16, 256), (64, 4), (1000, 3)])
def test_random_allocation_agrees(colours: int, pages: int, convention: Convention) -> None:
    found = monte_carlo(colours, pages, convention, runs=4000, level=0.9999)
    assert found.low <= expected_allocations(colours, pages, convention) <= found.high
    assert found == monte_carlo(colours, pages, convention, runs=4000, level=0.9999)


def test_memory_that_colours_do_not_divide_is_left_out() -> None:
    frame = table([1, 3, 4], [12, 16])
    assert frame.select("colours", "pages_per_colour").rows() == [(1, 12), (1, 16), (3, 4), (4, 3), (4, 4)]
    assert frame.select("colours", "pages_per_colour").height == 5


@pytest.mark.parametrize(
    ("colours", "pages", "convention"),
    [
        (0, 4, Convention.REFUSED),
        (70_000, 4, Convention.REFUSED),
        (4, -1, Convention.REFUSED),
        (4, 0, Convention.FILLED),
    ],
)
def test_what_cannot_be_is_refused(colours: int, pages: int, convention: Convention) -> None:
    with pytest.raises(BadInputError, match="the model takes"):
        expected_allocations(colours, pages, convention)
