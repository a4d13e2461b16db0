"""The model's blocks, for training: plain torch, all sequences of a batch laid out as one run of rows.

Letters in shapes: N rows (all sequences of a batch, one after the other), S streams, D hidden, H heads,
C rows a chunk.
`place` [N] int32 is each row's index in its own sequence; it keeps shifted reads inside that sequence.
"""
