"""Bytes to tensors: safetensors shards, affine n-bit groups, refusals in plain words."""
