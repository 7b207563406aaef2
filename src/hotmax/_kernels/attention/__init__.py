"""Attention over tiles of queries and keys."""
