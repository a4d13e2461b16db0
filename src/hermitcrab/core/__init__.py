"""Lanes and slots: who runs, where, and with how many rows. Plain Python, no tensors."""
