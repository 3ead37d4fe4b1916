"""What this machine offers, where a record comes from, what is missing, and settings that can be put back."""

from __future__ import annotations

from .describe import describe
from .provenance import provenance

__all__ = ["describe", "provenance"]
