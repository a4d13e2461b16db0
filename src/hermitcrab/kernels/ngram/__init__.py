"""The n-gram hash: which table rows a token's n-grams use."""

from hermitcrab.kernels.ngram.ref import ngram_rows

__all__ = ["ngram_rows"]
