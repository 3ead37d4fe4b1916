"""Simulators and models: what a program would do under page colours, caches and TLBs that this machine may not have."""
