"""Base class of all models of the contract."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """Read once, then never changed; a field that is not in the contract is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)
