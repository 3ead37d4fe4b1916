"""Requests, records and warnings between the launcher and this package.

``record`` and ``request`` are generated from ``crates/contract``: change the Rust types, then ``make contract``.
"""
