"""How a sweep can end early."""

from __future__ import annotations

from ...errors import PagelabError


class SweepInterruptedError(PagelabError):
    """Somebody asked it to stop; everything finished so far is in the dataset."""

    exit_code = 130
