"""Work on several processes, here or on a cluster, through one interface (:mod:`pagelab.distribute.model`)."""
