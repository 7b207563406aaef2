"""Floating-point arithmetic: exp, log1p, sums, half precision, sparse products."""
