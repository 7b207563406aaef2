"""How kernels are compiled and cached: the only place that knows Numba's insides."""
