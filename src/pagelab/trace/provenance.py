"""Provenance of a trace, for its header."""

from __future__ import annotations

import sys
from typing import Any


def provenance(parameters: dict[str, Any]) -> dict[str, Any]:
    """Command line, machine, software, time, and the parameters of the operation."""
    from pagelab.machine.provenance import provenance as of_machine

    return {"argv": list(sys.argv), "parameters": parameters, "machine": of_machine()}
