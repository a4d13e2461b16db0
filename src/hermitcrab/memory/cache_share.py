"""What the prompt cache may take where nobody said."""

GIB = 1 << 30

# of what the load limit leaves beside the sessions: the rest is there for what the operator adds later
_SHARE = 4

# some hundred thousand rows of a large model; more is asked for by those who have more conversations
MOST_BYTES = 8 * GIB


def cache_share(left_bytes: int) -> int:
    """Bytes of the cache, when so many are left under the load limit; none where none are left."""
    return max(0, min(left_bytes // _SHARE, MOST_BYTES))
