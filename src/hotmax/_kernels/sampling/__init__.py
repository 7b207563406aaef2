"""Sampling kernels: random numbers, filters, draws."""
