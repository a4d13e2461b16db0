"""What is drawn: the sampling parameters, the counter-based noise and the drawing rule, in plain Python."""
