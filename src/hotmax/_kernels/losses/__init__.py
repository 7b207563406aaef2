"""Loss kernels: cross entropy, losses of the probability of the label, divergences."""
