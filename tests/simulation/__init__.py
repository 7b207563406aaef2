"""Simulations that check statistical claims: `make simulate` runs them at length."""
