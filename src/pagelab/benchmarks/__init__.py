"""The bundled benchmarks (ALLOC, appendix A): their ``catalogue``, programs and inputs.

A study names them with ``benchmarks = ["native", "gcc", …]``; docs/benchmarks.md lists them.
"""
