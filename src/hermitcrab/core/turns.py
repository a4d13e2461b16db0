"""Who takes part in a round with more streams than rows: least recently served first, none starves."""

from collections.abc import Sequence

from hermitcrab.core.stream import Stream


def choose(streams: Sequence[Stream], *, row_limit: int) -> list[Stream]:
    """At most `row_limit` streams, each with a row for its pending token; least recently served first.

    Among streams never served the one admitted first comes first.
    """
    return sorted(streams, key=lambda stream: stream.stats.served_turn)[:row_limit]
