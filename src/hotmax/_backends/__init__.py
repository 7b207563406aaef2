"""Any array in, the same kind of array out. One module for each library that needs its own way.

NumPy     the kernels
torch     the kernels on CPU tensors, inside autograd; else the generic formulas
jax       the generic formulas, with derivative rules
dask      the kernels, block by block; blocks along the classes merge their sums
array API the generic formulas (array_api_strict, cupy and whatever keeps to the array API)
"""
