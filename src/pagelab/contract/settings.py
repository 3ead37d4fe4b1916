# Generated from crates/contract and crates/abi by tools.contract; change the Rust types, then: make contract

"""The settings of a run that people choose, as the request has them."""

from __future__ import annotations

from pagelab.contract.rows import RunSetting

RUN_SETTINGS = (
    RunSetting(field="preload", kind="words", words=("auto", "always", "never"), default="auto", study=("study",)),
    RunSetting(
        field="cpus",
        kind="cpus",
        study=("study", "policy"),
        flag="cpu",
        metavar="LIST",
        help="Pin to these CPUs: 1, 0-3,8.",
        compared="Pinned to these CPUs: 1, 0-3,8.",
        label="pinned to CPUs",
        short="CPU",
    ),
    RunSetting(
        field="aslr",
        kind="switch",
        words=("on", "off"),
        study=("study", "policy"),
        flag="aslr",
        metavar="on|off",
        help="Randomise addresses, or not.",
        compared="Addresses randomised, or not.",
        label="ASLR",
        short="ASLR",
    ),
    RunSetting(
        field="scheduler",
        kind="words",
        words=("fifo",),
        study=("study", "policy"),
        flag="scheduler",
        metavar="fifo",
        help="Real-time priority (SCHED_FIFO).",
        label="scheduler",
    ),
    RunSetting(
        field="node", kind="number", study=("study",), flag="node", metavar="N", help="Bind memory to this node."
    ),
    RunSetting(
        field="user", kind="text", flag="user", metavar="NAME", help="Run as this user instead of the one asking."
    ),
    RunSetting(
        field="timeout_s",
        kind="seconds",
        study=("study", "workload"),
        flag="timeout",
        metavar="SECONDS",
        help="End an execution after this long.",
    ),
    RunSetting(
        field="host_backed_bytes",
        kind="size",
        study=("study", "workload", "policy"),
        flag="host-backed",
        metavar="SIZE",
        help="Touch this much free memory first, so that a virtual machine's host backs it.",
    ),
)
