"""Draws from logits: sample, filters, samplers, Gumbel-softmax, beam search."""
