"""What continues a study: the command, and the runs that it repeats."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..errors import quoted

if TYPE_CHECKING:
    from .plan import Plan
    from .store import Store

MARK = "cluster"
"""Key of ``meta``: the study's blocks belong to the hosts of a cluster."""
ADDRESS = "cluster_address"
"""Key of ``meta``: where its latest session found the cluster."""
UNSTARTED = "unstarted"
"""Key of ``meta``: positions of runs that could not be started, nor could any other of their session."""


def resume_command(where: str, meta: Mapping[str, str], plan: Plan, more: str = "") -> str:
    """The command that continues a study, with the options ``more`` (each after a blank).

    ``where``: the study's directory, as a word of a shell; ``meta``: the store's.
    """
    command = f"study resume {where}{more}"
    if MARK in meta:
        return f"pagelab {command} --cluster {quoted(meta[ADDRESS]) if ADDRESS in meta else 'ADDRESS'}"
    # Where it restarts the machine, the user has to agree again.
    return sudo(f"{command} --reboot") if plan.reboots is not None else f"pagelab {command}"


def sudo(command: str) -> str:
    """A command of pagelab for root, as sudo finds it."""
    from ..machine.probe import own_command

    return f"sudo {quoted(own_command())} {command}"


def repeat_unstarted(store: Store) -> None:
    """Removes the runs of a session that could start none, to be repeated."""
    positions = json.loads(store.meta().get(UNSTARTED) or "[]")
    if positions:
        store.take_back(positions)
        store.put_meta(UNSTARTED, "")
