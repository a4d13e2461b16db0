"""Who takes part in a round with more streams than it takes: least recently served first, none starves."""

from collections.abc import Sequence

from hermitcrab.core.stream import Stream


def choose(streams: Sequence[Stream], *, stream_limit: int) -> list[Stream]:
    """At most `stream_limit` streams, least recently served first.

    Among streams never served the one admitted first comes first.
    """
    return sorted(streams, key=lambda stream: stream.stats.served_turn)[:stream_limit]
