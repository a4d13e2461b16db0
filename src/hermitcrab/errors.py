"""Every error the project raises on purpose, as one tree.

HermitcrabError
├── SettingError              an option, environment variable or config file is wrong
├── CheckpointError           a model directory cannot be read
├── TrailError                a file is no trail, or no load, that can be read
├── RequestError              a request is wrong: its sender can mend it
│   ├── ContextLengthExceeded the prompt can never fit
│   ├── UnknownModel          no such model here
│   ├── UnknownResponse       no such earlier response here, or no longer
│   ├── WrongKey              the key is missing or wrong
│   └── BodyTooLarge          the body is larger than the operator allows
├── Busy                      not now: try again later
│   ├── QueueFull             too many requests wait already
│   └── ShuttingDown          the server is ending
├── BudgetError               the sessions do not fit in memory
└── LaneError                 something failed while a stream ran
    ├── LaneMemory            no larger session is free now; the stream waits
    ├── StateNotSettled       a session was used while a window awaited its keep
    ├── SessionFull           no session can ever hold the stream
    └── DeviceFailed          the device or its library failed
        └── DeviceMemory      it had no memory for one call
"""


class HermitcrabError(Exception):
    """Base of all errors whose text is meant for the person who has to act."""


class SettingError(HermitcrabError):
    """An option, environment variable or config file is wrong; the text names it and what is allowed."""


class CheckpointError(HermitcrabError):
    """A model directory cannot be read; the text names the file, tensor or field."""


class TrailError(HermitcrabError):
    """A file is no trail to replay, or no load to simulate; the text names the line and what is wrong."""


class RequestError(HermitcrabError):
    """A request is wrong and its sender can mend it.

    `param` names the field at fault, where there is one.
    """

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class ContextLengthExceeded(RequestError):
    """The prompt is longer than the largest session can ever hold."""

    def __init__(self, *, prompt_tokens: int, context_tokens: int) -> None:
        super().__init__(
            f"This server's maximum context length is {context_tokens} tokens, "
            f"but the prompt has {prompt_tokens}. Shorten the prompt.",
            param="messages",
        )
        self.prompt_tokens = prompt_tokens
        self.context_tokens = context_tokens


class UnknownModel(RequestError):
    """The request names a model this server does not have."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(
            f"There is no model {name!r} here; this server has {', '.join(known)}.", param="model"
        )
        self.name = name


class UnknownResponse(RequestError):
    """The request goes on from an earlier response that this server does not have, or no longer."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"There is no stored response {name!r} here: it was made with store: false, "
            "has made room for newer ones, or is another server's.",
            param="previous_response_id",
        )
        self.name = name


class WrongKey(RequestError):
    """The server asks for a key and the request brings none, or another."""

    def __init__(self) -> None:
        super().__init__(
            "This server asks for a key: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`."
        )


class BodyTooLarge(RequestError):
    """The request's body is larger than the operator allows."""

    def __init__(self, *, limit_bytes: int) -> None:
        super().__init__(f"The request body is larger than this server takes: {limit_bytes} bytes at most.")
        self.limit_bytes = limit_bytes


class Busy(HermitcrabError):
    """The server cannot take the request now; `retry_after_s` says when to try again."""

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class QueueFull(Busy):
    """As many requests wait as the operator allows."""


class ShuttingDown(Busy):
    """The server takes no new requests because it is ending."""


class BudgetError(HermitcrabError):
    """The sessions asked for do not fit in memory; the text gives need, room and what would fit."""


class LaneError(HermitcrabError):
    """Something failed while a stream ran; it ends that stream and no other."""


class LaneMemory(LaneError):
    """No larger session is free now: the stream keeps waiting."""


class StateNotSettled(LaneError):
    """A session was moved, read or written while a window in it awaited its keep."""


class SessionFull(LaneError):
    """The stream has outgrown every session that exists."""


class DeviceFailed(LaneError):
    """The device or its library failed; the text carries its words."""


class DeviceMemory(DeviceFailed):
    """The device had no memory for a call; what the call was for ends, and may be tried again."""
