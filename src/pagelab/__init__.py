"""pagelab: a laboratory for virtual-memory page placement on Linux.

The ``pagelab`` command and this package expose the same operations; see docs/architecture for how they hang
together. Importing the package imports nothing heavy.
"""
