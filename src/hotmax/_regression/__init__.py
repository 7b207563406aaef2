"""Softmax regression: the linear model softmax((W x + b) / T), fitted to data.

objective.py   loss, gradient and curvature, over tiles of rows
whitening.py   coordinates in which few steps are needed
solver.py      the minimum, by SciPy's optimisers
summary.py     standard errors, intervals, odds ratios
estimator.py   SoftmaxRegression, with scikit-learn's conventions
"""
