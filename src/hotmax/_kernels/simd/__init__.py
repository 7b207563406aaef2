"""Vectors, memory and moving rows through buffers."""

WIDTH = 8  # entries of a vector; also rows and columns of a square that is transposed in registers
LINE = 2 * WIDTH  # entries of a long vector: the float32 numbers of a cache line
