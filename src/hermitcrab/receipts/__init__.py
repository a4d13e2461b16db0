"""Receipts: prove that replies are exact, in this process or against a running server, and write it down."""
