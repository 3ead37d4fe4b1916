"""The bundled benchmarks (ALLOC's, appendix A): the ``catalogue``, their programs and their inputs.

A study names them with ``benchmarks = ["native", "gcc", …]``; docs/benchmarks.md lists them.
"""
