"""Inputs of the bundled benchmarks, made from a seed: the same bytes on every machine and Python.

Only :meth:`random.Random.getrandbits` and what stands on it directly are used: Python guarantees the stream of
``random()`` alone, and this generator's 32-bit words have not changed since it came.
"""
