"""Kept prompt states: which to keep, which to find, which to let go. Pure: states are numbers with a size."""
