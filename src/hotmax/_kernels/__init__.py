"""Numba loops over one row or a block of rows. They write into `out`; no checks, no options."""
