"""Sizes as people write them: exact in every unit, and what is none is told."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagelab.errors import BadInputError
from pagelab.sizes import seconds_of, size_bytes

_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


@given(
    st.decimals(min_value=0, max_value=10**9, places=3, allow_nan=False),
    st.sampled_from(list(_POWERS)),
    st.sampled_from(["", "B", "iB", "ib"]),
    st.sampled_from(["", " "]),
)
def test_sizes_are_exact(number: Decimal, unit: str, bytes_: str, space: str) -> None:
    text = f"{number:f}{space}{unit.lower()}{bytes_}"
    exact = number * 1024 ** _POWERS[unit]
    if exact == int(exact):
        assert size_bytes(text, "--size") == exact
    else:
        with pytest.raises(BadInputError, match="not a whole number of bytes"):
            size_bytes(text, "--size")


@pytest.mark.parametrize("wrong", ["", "K", "-1", "1Q", "1e3", "lots", -1, 1.5, True, None, [4]])
def test_what_is_no_size_is_told(wrong: object) -> None:
    with pytest.raises(BadInputError, match=r"^--budget .*: not a size; allowed"):
        size_bytes(wrong, "--budget")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), (".5s", 0.5), ("1.s", 1), ("500ms", 0.5), ("2min", 120), ("5", None), (".s", None)],
)
def test_times_have_a_number_and_a_unit(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds
