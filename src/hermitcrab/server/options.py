"""What the operator decides about the HTTP side."""

from dataclasses import dataclass

from hermitcrab.settings import HttpSettings


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The model's names and the server's limits.

    A stream shows a sign of life every `keepalive_s`. `/health` calls the engine stuck when it has work and
    has not gone round for `stuck_s`: longer than a prompt pass or a compilation takes. A client that takes
    nothing for `slow_client_s` is dropped. `session_bytes` is what all sessions take, where it is known.
    """

    model_id: str
    aliases: tuple[str, ...] = ()
    api_key: str | None = None
    max_body_bytes: int = 32 << 20
    keepalive_s: float = 4.0
    stuck_s: float = 60.0
    slow_client_s: float = 120.0
    session_bytes: int | None = None


def server_options(http: HttpSettings, *, model_id: str, session_bytes: int | None = None) -> ServerOptions:
    """The options that the operator's settings ask for."""
    return ServerOptions(
        model_id=model_id,
        aliases=http.aliases,
        api_key=http.api_key,
        max_body_bytes=http.max_body_mb << 20,
        session_bytes=session_bytes,
    )
