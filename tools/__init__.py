"""Checks and measurements of this source tree; no part of pagelab."""
