"""Capabilities of this machine, provenance of records, missing features, and settings that can be restored."""

from __future__ import annotations

from .describe import describe
from .provenance import provenance

__all__ = ["describe", "provenance"]
