"""Calibration kernels: likelihood of a temperature, scores of rows, bins."""
