"""`hermitcrab serve`: load, listen, show what goes on, and end well."""

import asyncio
import contextlib
import json
import logging
import socket
import threading
from collections.abc import Callable
from types import FrameType

import uvicorn
from rich.console import Console

from hermitcrab.assemble import Assembled, serve_parts
from hermitcrab.cli.console import make_console, set_up_logging
from hermitcrab.cli.live import Loading, status_display
from hermitcrab.cli.options import settings_command
from hermitcrab.clock import Clock, WallClock
from hermitcrab.core.host import LaneHost
from hermitcrab.errors import SettingError
from hermitcrab.server.app import create_app
from hermitcrab.server.options import server_options
from hermitcrab.settings import HttpSettings, Settings

logger = logging.getLogger(__name__)

# what ending may take beyond the time that replies are given: a round to stop, clients to hear it
_GRACE_S = 2.0

# clients keep idle connections longer than uvicorn's 5 s, and trip over one closed as they reuse it
_KEEP_ALIVE_S = 75


def serve(settings: Settings) -> None:
    """Run the server until it is asked to stop. Raises HermitcrabError when it cannot start."""
    console = make_console(is_for_machines=settings.log_json)
    clock = WallClock()
    set_up_logging(settings.log_level, console, is_json=settings.log_json)
    started_s = clock.now_s()
    # before the load: a port in use should not take minutes to show
    with listening_socket(settings.http) as listener:
        with Loading(console) as loading:
            parts = serve_parts(settings, loading)
        load_s = clock.now_s() - started_s
        logger.info("loaded in %.1f s", load_s, extra=_event("Loaded", load_s=round(load_s, 3)))
        run_server(parts, settings, listener, console, clock)


def run_server(
    parts: Assembled, settings: Settings, listener: socket.socket, console: Console, clock: Clock
) -> None:
    """Serve loaded parts on a bound socket until a signal asks to stop."""
    options = server_options(settings.http, model_id=parts.model_id, session_bytes=parts.session_bytes)
    app = create_app(parts.lanes, parts.text, options, clock)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=1,
    )
    url = _url(settings.http.host, listener)

    def is_ready() -> None:
        if settings.log_json:
            logger.info("ready at %s", url, extra=_ready_event(parts, url))
            return
        for line in ready_lines(parts, settings.http, url):
            console.out(line, highlight=False)

    server = EndingServer(config, parts.lanes, drain_s=settings.lanes.drain_s, is_ready=is_ready, clock=clock)
    parts.lanes.start()
    with contextlib.ExitStack() as shown:
        if console.is_terminal:
            shown.enter_context(status_display(parts.lanes, console))
        server.run(sockets=[listener])
    logger.info("ended", extra=_event("Stopped"))


class EndingServer(uvicorn.Server):
    """Ends in bounded time: after a signal replies run on for `drain_s`, a second signal cuts them off.

    Every open stream gets its terminal event before its connection closes.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        lanes: LaneHost,
        *,
        drain_s: float,
        is_ready: Callable[[], None],
        clock: Clock,
    ) -> None:
        super().__init__(config)
        self._lanes = lanes
        self._drain_s = drain_s
        self._is_ready = is_ready
        self._clock = clock
        self._end_by_s: float | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._is_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # uvicorn's own would raise the signal again at the end, and so end the program with an error
        if self.should_exit:
            self.force_exit = True
            self._end_by_s = self._clock.now_s() + _GRACE_S
            threading.Thread(target=self._lanes.close, kwargs={"drain_s": 0.0}, daemon=True).start()
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logger.info(
            "stopping: running replies have %g s to end; a second signal stops at once",
            self._drain_s,
            extra=_event("Stopping", drain_s=self._drain_s),
        )
        if self._end_by_s is None:
            self._end_by_s = self._clock.now_s() + self._drain_s + _GRACE_S
        # a daemon thread: should the engine hang in the device, the program still ends
        closing = threading.Thread(target=self._lanes.close, kwargs={"drain_s": self._drain_s}, daemon=True)
        closing.start()
        while closing.is_alive() and self._clock.now_s() < self._end_by_s:
            await asyncio.sleep(0.02)
        if closing.is_alive():
            logger.warning("the engine did not stop in time and is left behind", extra=_event("EngineLeft"))
        # clients have had their last event by now, unless they do not read
        self.force_exit = False
        await super().shutdown(sockets)


def listening_socket(http: HttpSettings) -> socket.socket:
    """A socket bound to the operator's address. Raises SettingError when it cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            http.host, http.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise SettingError(f"--host {http.host}: not an address here: {error.strerror}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        place = f"{http.host} port {http.port}"
        raise SettingError(f"cannot listen on {place}: {error.strerror}; choose another --port") from error
    return listener


def ready_lines(parts: Assembled, http: HttpSettings, url: str) -> list[str]:
    """What an operator wants to know at the start: address, model, sessions, load check, a line to try."""
    ask = {"messages": [{"role": "user", "content": "Hello!"}]}
    headers = "-H 'Content-Type: application/json'"
    if http.api_key is not None:
        headers += " -H 'Authorization: Bearer YOUR_KEY'"
    return [
        f"{parts.model_id} is served at {url}/v1, {parts.lanes.context_tokens} tokens of context",
        f"  watch it at {url}/",
        *(f"  {line}" for line in parts.session_lines),
        *(f"  {line}" for line in parts.lanes.status().load_check.lines),
        f"try: curl {url}/v1/chat/completions {headers} -d '{json.dumps(ask)}'",
    ]


def _ready_event(parts: Assembled, url: str) -> dict[str, object]:
    status = parts.lanes.status()
    return _event(
        "Ready",
        url=url,
        model=parts.model_id,
        context_tokens=parts.lanes.context_tokens,
        session_rows=[session.capacity_rows for session in status.sessions],
        load_check=status.load_check.state,
    )


def _event(name: str, **fields: object) -> dict[str, object]:
    """What a log line is, for those who read it as JSON."""
    return {"event": name, "fields": fields}


def _url(host: str, listener: socket.socket) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}"


command = settings_command("serve", Settings, serve, "Serve a model over the OpenAI API.")
