"""Placement: the pages that back the memory of a live process, their sizes and frames.

>>> from pagelab import placement
>>> placement.collect(1234).by_size  # doctest: +SKIP
[SizeBytes(page_bytes=4096, bytes=9928704), SizeBytes(page_bytes=2097152, bytes=1073741824)]
"""

from .collect import collect
from .errors import NoSuchProcessError, NotPermittedError, ProcessEndedError
from .model import AddressMap, Mapping, Region, Tile

__all__ = [
    "AddressMap",
    "Mapping",
    "NoSuchProcessError",
    "NotPermittedError",
    "ProcessEndedError",
    "Region",
    "Tile",
    "collect",
]
