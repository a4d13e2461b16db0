"""Commands of the `hermitcrab` program."""
