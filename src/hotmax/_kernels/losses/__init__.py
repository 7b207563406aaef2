"""Losses of rows, with their gradients."""
