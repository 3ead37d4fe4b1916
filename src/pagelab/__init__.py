"""pagelab: a laboratory for virtual-memory page placement on Linux."""
