"""The recipe of the built-in model: its data, tokenizer, trainer, export and evaluation."""
