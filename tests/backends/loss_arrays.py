"""Logits, targets and weights for the losses on every library."""

from __future__ import annotations

import math

import numpy as np
from optional import torch
from scipy import special

import hotmax as hm

rng = np.random.default_rng(0)
X, Z, V = rng.standard_normal((3, 4, 6))
X[1, 2] = -math.inf
Z[1, 2] = -math.inf

Y = np.array([0, 5, 1, 3])
SOFT = rng.random((4, 6)) * [1, 1, 1, 1, 0, 1]  # 0 where MASK is False
SOFT /= SOFT.sum(-1, keepdims=True)
SOFT[1] = [0.5, 0.5, 0, 0, 0, 0]
W = rng.random(6)

# function, its arguments, how many of them have a derivative
LOSSES = [
    (hm.cross_entropy, (X, Y), 1),
    (hm.cross_entropy, (X, SOFT), 1),
    (hm.perplexity, (X, Y), 1),
    (hm.nll_loss, (special.log_softmax(X, axis=-1), Y), 1),
    (hm.mae_loss, (X, Y), 1),
    (hm.brier_loss, (X, Y), 1),
    (hm.focal_loss, (X, Y), 1),
    (hm.kl_divergence, (X, Z), 2),
    (hm.distillation_loss, (X, Z), 1),
]


def to_torch(a, grad=False):
    tensor = torch.from_numpy(np.array(a))
    return tensor.requires_grad_() if grad else tensor


def close(got, want):
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-12, atol=1e-14)
