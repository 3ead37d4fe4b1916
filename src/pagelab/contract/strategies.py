# Generated from crates/contract and crates/abi by tools.contract; change the Rust types, then: make contract

"""The strategies that place frames, as the table of the plan has them."""

from __future__ import annotations

from pagelab.contract.rows import Strategy

STRATEGIES = (
    Strategy(
        name="page-coloring",
        summary="a page’s cache colour follows its address",
        example="page-coloring",
        parameters=(("hash", "pid: colours are turned by a hash of the process id; without it they are not"),),
    ),
    Strategy(
        name="bin-hopping",
        summary="cache colours are dealt in the order of page faults",
        example="bin-hopping",
        parameters=(
            ("first", "colour of the first page, from 0; 0 without it"),
            ("seed", "whole number from 0; 0 without it"),
        ),
    ),
    Strategy(
        name="modulo",
        summary="each page has a cache colour that the policy names",
        example="modulo:…",
        parameters=(
            ("pattern", "list of colours, repeated over the virtual pages"),
            ("map", "file with a saved map"),
            ("spans", "list of start addresses, each with a value for every page"),
        ),
    ),
    Strategy(
        name="exact",
        summary="each page has a frame that the policy names",
        example="exact:…",
        parameters=(
            ("frames", "list of frame numbers, from the start of one pool or range on"),
            ("map", "file with a saved map"),
            ("spans", "list of start addresses, each with a value for every page"),
        ),
    ),
    Strategy(
        name="random",
        summary="cache colours are drawn at random",
        example="random:seed=N",
        parameters=(("seed", "whole number from 0; 0 without it"),),
    ),
    Strategy(
        name="module",
        summary="a module of the user’s places the pages",
        example="module:path=F",
        parameters=(
            ("path", "file with a shared object"),
            ("argument", "text for the shared object; none without it"),
            ("seed", "whole number from 0; 0 without it"),
        ),
    ),
)
