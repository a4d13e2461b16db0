"""Hermitcrab: one large hybrid language model, many conversations, sessions that fit."""

__version__ = "0.1.0"
