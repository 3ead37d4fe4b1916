"""What chases of pages say about a processor's translation hardware: measured by ``doctor --probe-translation``."""
