"""Session lists tried on a load: the real lanes on a backend that only takes time, and an ideal pool."""
