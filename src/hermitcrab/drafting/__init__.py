"""What to guess and how deep: copies of the context, landing rates, measured costs, the depth that pays."""
