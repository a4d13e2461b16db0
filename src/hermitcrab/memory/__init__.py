"""Bytes: what sessions cost and whether they fit, in plain Python."""
