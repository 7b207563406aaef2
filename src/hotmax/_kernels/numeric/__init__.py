"""Floating-point arithmetic: exp, log1p, double-double, half precision, sparse products."""
