"""Vectors, memory and moving rows through buffers."""
