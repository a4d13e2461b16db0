"""Text to tokens and back: the chat template, incremental detokenizing, stop strings, thinking."""
