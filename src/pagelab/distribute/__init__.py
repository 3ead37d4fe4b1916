"""Distributes work over processes, here or on a cluster, with one interface (:mod:`pagelab.distribute.model`)."""
