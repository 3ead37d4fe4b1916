"""Which machine this is, without telling anybody its id."""

from __future__ import annotations

import hashlib
import platform

from ..sysfs import Tree


def machine_hash(tree: Tree | None = None) -> str:
    """16 hexadecimal digits of a hash of ``/etc/machine-id`` (machine-id(5) asks not to expose it), or of the name."""
    tree = tree or Tree()
    identity = tree.get("/etc/machine-id") or platform.node()
    return hashlib.sha256(f"pagelab colours {identity}".encode()).hexdigest()[:16]
