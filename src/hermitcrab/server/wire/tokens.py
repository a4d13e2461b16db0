"""POST /tokenize and /detokenize, in the fields that the two servers people know them from gave them."""

from collections.abc import Mapping
from typing import Any, ClassVar

from hermitcrab.errors import RequestError
from hermitcrab.server.wire.body import RequestModel, refuse_not_yet

_TEXT_NAMES = ("prompt", "content", "text")


class TokenizeRequest(RequestModel):
    """POST /tokenize: a text under one of its three names, or the messages of a chat request."""

    not_yet: ClassVar[Mapping[str, tuple[object, ...]]] = {
        "return_token_strs": (False,),
        "with_pieces": (False,),
        "add_generation_prompt": (True,),
        "continue_final_message": (False,),
    }

    model: str | None = None
    prompt: str | None = None
    content: str | None = None
    text: str | None = None
    messages: Any = None
    parse_special: bool | None = None

    return_token_strs: Any = None
    with_pieces: Any = None
    add_generation_prompt: Any = None
    continue_final_message: Any = None

    def check(self) -> None:
        """Raises RequestError for what is not supported yet, and for anything but one thing to encode."""
        refuse_not_yet(self, self.not_yet)
        given = [name for name in (*_TEXT_NAMES, "messages") if getattr(self, name) is not None]
        if len(given) != 1:
            raise RequestError(
                f"Send one of prompt, content, text and messages, not {len(given)}.",
                param=given[1] if given else "prompt",
            )

    @property
    def only_text(self) -> str | None:
        """The text; None where there are messages."""
        return next((text for name in _TEXT_NAMES if (text := getattr(self, name)) is not None), None)

    @property
    def has_controls(self) -> bool:
        """Whether control tokens spelled out in the text are control tokens."""
        return self.parse_special is not False


class DetokenizeRequest(RequestModel):
    """POST /detokenize."""

    model: str | None = None
    tokens: list[int]
