"""Losses: cross entropy, losses of probabilities, divergences, labels."""
