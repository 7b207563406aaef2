"""Attention kernels: scores with mask and bias, online softmax, weighted values, gradients."""
