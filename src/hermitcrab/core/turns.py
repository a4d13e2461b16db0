"""Who takes part in a round with more streams than it takes: least recently served first, none starves."""

from collections.abc import Sequence

from hermitcrab.core.stream import Stream


def choose(streams: Sequence[Stream], *, stream_limit: int) -> list[Stream]:
    """At most `stream_limit` streams, least recently served first; a first token is a turn.

    So whoever is passed over is behind fewer with each round: it waits for no more rounds than there are
    other streams, whoever comes and goes.
    """
    return sorted(streams, key=lambda stream: stream.stats.served_turn)[:stream_limit]
