"""Responses that a later request may go on from: in memory, the newest, up to a number and a size."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from hermitcrab.errors import UnknownResponse
from hermitcrab.server.wire.responses import Item

MAX_RESPONSES = 1000
MAX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Kept:
    """A conversation up to the end of one response, and the response; `size_bytes` is what both take."""

    items: tuple[Item, ...]
    size_bytes: int
    response: Mapping[str, Any]


NOTHING = Kept((), 0, MappingProxyType({}))


class KeptResponses:
    """The store; used from the event loop only.

    Each response counts with its whole conversation, though it shares the items of those before it: what is
    really held is less than `max_bytes`.
    """

    def __init__(self, *, max_responses: int = MAX_RESPONSES, max_bytes: int = MAX_BYTES) -> None:
        self._max_responses = max_responses
        self._max_bytes = max_bytes
        self._size_bytes = 0
        self._kept: OrderedDict[str, Kept] = OrderedDict()

    def get(self, name: str | None) -> Kept:
        """The conversation to go on from; an empty one for no name. Raises UnknownResponse."""
        if name is None:
            return NOTHING
        if name not in self._kept:
            raise UnknownResponse(name)
        self._kept.move_to_end(name)
        return self._kept[name]

    def delete(self, name: str) -> None:
        """Forget a response; those that went on from it keep its items. Raises UnknownResponse."""
        self._size_bytes -= self.get(name).size_bytes
        del self._kept[name]

    def keep(
        self,
        name: str,
        before: Kept,
        items: Sequence[Item],
        response: Mapping[str, Any],
        *,
        size_bytes: int,
    ) -> None:
        """Keep a response that went on from `before`; those not used for longest make room."""
        kept = Kept((*before.items, *items), before.size_bytes + size_bytes, response)
        self._kept[name] = kept
        self._size_bytes += kept.size_bytes
        while len(self._kept) > self._max_responses or self._size_bytes > self._max_bytes:
            _, dropped = self._kept.popitem(last=False)
            self._size_bytes -= dropped.size_bytes
