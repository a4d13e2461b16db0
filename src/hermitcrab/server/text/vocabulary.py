"""A tokenizer.json as the server uses it: text to ids with control tokens kept apart, and ids to bytes.

Control tokens (tokenizer.json calls them added tokens) are cut out of a text here, not in the tokenizers
library, so that the caller decides which spellings count: one with a `BREAK` inside does not.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from hermitcrab.errors import CheckpointError
from hermitcrab.server.text.marks import BREAK, MARKS


@dataclass(frozen=True, slots=True)
class ControlToken:
    """A token that is one unit whatever stands around it; a `is_hidden` one never shows in a reply's text."""

    id: int
    text: str
    is_hidden: bool


class Vocabulary:
    """Encodes prompts and says which bytes a reply token stands for. Safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer, controls: tuple[ControlToken, ...]) -> None:
        self._tokenizer = tokenizer
        self._controls = {control.id: control for control in controls}
        self._control_ids = {control.text: control.id for control in controls}
        longest_first = sorted(self._control_ids, key=len, reverse=True)
        self._control_pattern = re.compile("|".join(re.escape(text) for text in longest_first) or r"(?!)")
        self._heads = tuple({text[:at] for text in self._control_ids for at in range(1, len(text))})
        self._tails = tuple({text[at:] for text in self._control_ids for at in range(1, len(text))})
        self._bytes: dict[int, bytes] = {}
        plain_ids = tokenizer.get_vocab(with_added_tokens=False).values()
        self._end_id = max((*plain_ids, *self._controls), default=-1) + 1

    @property
    def end_id(self) -> int:
        """One more than the highest id that a token has."""
        return self._end_id

    @property
    def control_ids(self) -> tuple[int, ...]:
        """The ids of the control tokens."""
        return tuple(self._controls)

    def id_of(self, control: str) -> int | None:
        """The id of a control token by its spelling."""
        return self._control_ids.get(control)

    def encode(self, text: str) -> list[int]:
        """Token ids of a text in which every unbroken spelling of a control token is that token."""
        ids: list[int] = []
        start = 0
        for match in self._control_pattern.finditer(text):
            ids += self._encode_plain(text[start : match.start()])
            ids.append(self._control_ids[match.group()])
            start = match.end()
        return ids + self._encode_plain(text[start:])

    def broken(self, text: str) -> str:
        """The text with a `BREAK` wherever it spells a control token, or might with something beside it."""
        text = self._control_pattern.sub(lambda match: BREAK.join(match.group()), text)
        if text.startswith(self._tails):
            text = BREAK + text
        if text.endswith(self._heads):
            text += BREAK
        return text

    def bytes_of(self, token: int) -> bytes:
        """UTF-8 bytes a token adds to a reply: none for a hidden control token or an id without a token."""
        if not 0 <= token < self._end_id:
            return b""
        known = self._bytes.get(token)
        if known is None:
            known = self._bytes[token] = self._find_bytes(token)
        return known

    def spelling_of(self, token: int) -> bytes:
        """UTF-8 bytes that name a token: what it adds to a reply, or a hidden control token's letters."""
        control = self._controls.get(token)
        return self.bytes_of(token) if control is None else control.text.encode()

    def mark_of(self, token: int) -> str | None:
        """The mark a token stands for, where it is one of the structural tokens."""
        control = self._controls.get(token)
        return None if control is None else MARKS.get(control.text)

    def _encode_plain(self, text: str) -> list[int]:
        text = text.replace(BREAK, "")
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids) if text else []

    def _find_bytes(self, token: int) -> bytes:
        control = self._controls.get(token)
        if control is not None:
            return b"" if control.is_hidden else control.text.encode()
        letters = self._tokenizer.id_to_token(token)
        if letters is None:
            return b""
        return bytes(_BYTE_OF_LETTER[letter] for letter in letters)


def load_vocabulary(file: Path) -> Vocabulary:
    """Read a byte-level tokenizer.json. Raises CheckpointError naming the file and what is wrong with it."""
    data = _read(file)
    if (data.get("decoder") or {}).get("type") != "ByteLevel":
        raise CheckpointError(f"{file}: the decoder must be ByteLevel, the one this model family uses")
    controls = tuple(_control(file, entry) for entry in data.get("added_tokens") or [])
    plain = {**data, "added_tokens": [], "post_processor": None, "truncation": None, "padding": None}
    try:
        tokenizer = Tokenizer.from_str(json.dumps(plain))
    except Exception as error:  # the library raises bare Exception and nothing narrower
        raise CheckpointError(f"{file}: {error}") from error
    for letters in tokenizer.get_vocab(with_added_tokens=False):
        if not _BYTE_OF_LETTER.keys() >= set(letters) and letters not in {item.text for item in controls}:
            raise CheckpointError(f"{file}: token {letters!r} is not spelled in byte-level letters")
    return Vocabulary(tokenizer, controls)


def _read(file: Path) -> dict[str, Any]:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{file}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file}: not valid JSON: {error}") from error
    if not isinstance(data, dict):
        raise CheckpointError(f"{file}: must hold a JSON object")
    return data


def _control(file: Path, entry: Mapping[str, Any]) -> ControlToken:
    for flag in ("lstrip", "rstrip", "single_word"):
        if entry.get(flag):
            raise CheckpointError(
                f"{file}: added token {entry.get('content')!r} asks for {flag}, not supported"
            )
    try:
        return ControlToken(
            int(entry["id"]), str(entry["content"]), bool(entry["special"]) and entry["content"] not in MARKS
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{file}: an added token lacks id, content or special") from error


def _byte_letters() -> dict[str, int]:
    """The byte-level alphabet: printable Latin-1 bytes are themselves, others take letters from U+0100 on."""
    shown = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(0x100 + at): byte for at, byte in enumerate(hidden)}


_BYTE_OF_LETTER = _byte_letters()
