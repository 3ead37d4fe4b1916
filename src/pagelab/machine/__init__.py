"""Describes this machine: capabilities, provenance for records, missing features; changes and restores settings."""

from __future__ import annotations

from .describe import describe
from .provenance import provenance

__all__ = ["describe", "provenance"]
