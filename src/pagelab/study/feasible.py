"""Can this machine do a condition's policy? Asked of the policy language itself, before the first run."""

from __future__ import annotations

import json
from typing import Any

from .. import _native
from .plan import Condition


def cannot(condition: Condition, machine: dict[str, Any]) -> str | None:
    """Why this machine cannot do the condition's policy, with what it needs; None when it can.

    Raises BadInputError for a policy that no machine could do, with the place where it stands.
    """
    raise NotImplementedError(json.dumps(machine), _native, condition)
