"""A host loop that writes down all that came in and all that it did: the trail, one JSON line an act.

An *act* is one call into the loop: a submission, a cancel, a step, a drain, an end of all. Its line has what
came in, and under `did` each backend call with its answer and each decision, in order. The core is a function
of what came in, of the answers it got and of the clock, so the file is enough to run it again (replay.py).

Time in the loop stands still but for the start of an act, and the start and the end of a backend call. These
moments are in the lines, in whole microseconds, and so a replay sees the very times that the core saw.
"""

from collections.abc import Sequence
from dataclasses import replace

from hermitcrab.core.api import Event, Request, Sink, StopWatch
from hermitcrab.core.backend import (
    Backend,
    DraftRequest,
    Facts,
    PieceId,
    SlotId,
    StateKeeper,
    Verified,
    Window,
)
from hermitcrab.core.grammar import GrammarRules
from hermitcrab.core.lanes import LaneRules
from hermitcrab.core.loop import HostLoop
from hermitcrab.core.recorder import Record, Recorder
from hermitcrab.core.records import plain
from hermitcrab.core.stream import Limits
from hermitcrab.core.trail import Tracer
from hermitcrab.errors import HermitcrabError
from hermitcrab.sampling.edits import Edits
from hermitcrab.sampling.logprobs import TokenLogprobs
from hermitcrab.sampling.params import Sampling


class RecordedLoop(HostLoop):
    """Runs as `HostLoop` does, and has it all written down."""

    def __init__(
        self,
        backend: Backend,
        rules: LaneRules,
        recorder: Recorder,
        tracers: Sequence[Tracer],
    ) -> None:
        self._recorder = recorder
        recorder.begin(backend.facts(), rules)
        super().__init__(
            RecordedBackend(backend, recorder), rules, RecordedClock(recorder), (*tracers, recorder)
        )

    def submit(self, request: Request, sink: Sink) -> None:
        # its time of submission is now, not that of the last act
        self._recorder.tick()
        super().submit(request, sink)

    def enqueue(self, request: Request, limits: Limits, sink: Sink, *, submitted_s: float) -> None:
        submitted_us = round(submitted_s * 1e6)
        with self._recorder.act("submit", request=request, limits=limits, submitted_us=submitted_us):
            super().enqueue(
                self._heard(request),
                limits,
                RecordedSink(sink, request.id, self._recorder),
                submitted_s=submitted_us / 1e6,
            )

    def cancel(self, request_id: str) -> None:
        with self._recorder.act("cancel", request_id=request_id):
            super().cancel(request_id)

    def drain(self, error: HermitcrabError) -> None:
        with self._recorder.act("drain", error=error):
            super().drain(error)

    def end_all(self, error: HermitcrabError) -> None:
        with self._recorder.act("end_all", error=error):
            super().end_all(error)

    def step(self) -> bool:
        with self._recorder.act("step") as record:
            has_worked = super().step()
            record["is_idle"] = not has_worked
        return has_worked

    def _heard(self, request: Request) -> Request:
        """The request with what it has the core ask written down."""
        watch, grammar = request.stop_watch, request.grammar
        if watch is not None:
            watch = RecordedWatch(watch, request.id, self._recorder)
        if grammar is not None:
            grammar = RecordedGrammar(grammar, request.id, self._recorder)
        return replace(request, stop_watch=watch, grammar=grammar)


class RecordedClock:
    """The loop's time."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def now_s(self) -> float:
        return self._recorder.now_us / 1e6

    def unix_s(self) -> int:
        return int(self.now_s())


class RecordedWatch:
    """A stop watch; the push that ends the reply is written down."""

    def __init__(self, watch: StopWatch, request_id: str, recorder: Recorder) -> None:
        self._watch = watch
        self._request_id = request_id
        self._recorder = recorder
        self._pushes = 0

    def push(self, token: int) -> bool:
        self._pushes += 1
        try:
            is_complete = self._watch.push(token)
        except Exception as error:
            self._recorder.add({"watch": self._request_id, "push": self._pushes, "failed": plain(error)})
            raise
        if is_complete:
            self._recorder.add({"watch": self._request_id, "push": self._pushes})
        return is_complete


class RecordedGrammar:
    """A grammar; each answer is written down, a mask in full the first time it is given."""

    def __init__(self, grammar: GrammarRules, request_id: str, recorder: Recorder) -> None:
        self._grammar = grammar
        self._request_id = request_id
        self._recorder = recorder
        self._asked = 0
        self._advanced = 0

    def allowed(self, ahead: Sequence[int]) -> bytes | None:
        self._asked += 1
        record: Record = {"grammar": self._request_id, "asked": self._asked, "ahead": list(ahead)}
        try:
            mask = self._grammar.allowed(ahead)
        except Exception as error:
            self._recorder.add({**record, "failed": plain(error)})
            raise
        self._recorder.add({**record, **self._recorder.named(mask)})
        return mask

    def advance(self, token: int) -> None:
        self._advanced += 1
        try:
            self._grammar.advance(token)
        except Exception as error:
            self._recorder.add(
                {"grammar": self._request_id, "advanced": self._advanced, "failed": plain(error)}
            )
            raise


class RecordedSink:
    """A sink; the event that it did not take is written down."""

    def __init__(self, sink: Sink, request_id: str, recorder: Recorder) -> None:
        self._sink = sink
        self._request_id = request_id
        self._recorder = recorder
        self._puts = 0

    def put(self, event: Event) -> None:
        self._puts += 1
        try:
            self._sink.put(event)
        except Exception as error:
            self._recorder.add({"sink": self._request_id, "put": self._puts, "failed": plain(error)})
            raise


class RecordedBackend:
    """A backend; each call is written down with its answer."""

    def __init__(self, backend: Backend, recorder: Recorder) -> None:
        self._backend = backend
        self._recorder = recorder

    def facts(self) -> Facts:
        return self._backend.facts()

    def prefill(self, slot: SlotId, position: int, tokens: Sequence[int]) -> None:
        with self._recorder.call("prefill", slot=slot, position=position, rows=len(tokens)):
            self._backend.prefill(slot, position, tokens)

    def draw_first(self, slot: SlotId, position: int, sampling: Sampling, edits: Edits | None = None) -> int:
        with self._recorder.call("draw_first", slot=slot, position=position) as record:
            record["drawn"] = token = self._backend.draw_first(slot, position, sampling, edits)
        return token

    def first_logprobs(self, slot: SlotId, token: int, top: int) -> TokenLogprobs:
        with self._recorder.call("first_logprobs", slot=slot, token=token, top=top):
            return self._backend.first_logprobs(slot, token, top)

    def verify(self, windows: Sequence[Window]) -> list[Verified]:
        asked = [
            {
                "slot": window.slot,
                "position": window.position,
                "tokens": list(window.tokens),
                "top_logprobs": window.top_logprobs,
            }
            for window in windows
        ]
        with self._recorder.call("verify", windows=asked) as record:
            verified = self._backend.verify(windows)
            record["drawn"] = [list(result.drawn) for result in verified]
        return verified

    def keep(self, slot: SlotId, rows: int) -> None:
        with self._recorder.call("keep", slot=slot, rows=rows):
            self._backend.keep(slot, rows)

    def draft(self, requests: Sequence[DraftRequest]) -> list[tuple[int, ...]]:
        asked = [
            {
                "slot": request.slot,
                "position": request.position,
                "next_tokens": list(request.next_tokens),
                "depth": request.depth,
            }
            for request in requests
        ]
        with self._recorder.call("draft", requests=asked) as record:
            drafts = self._backend.draft(requests)
            record["drafts"] = [list(tokens) for tokens in drafts]
        return drafts

    def move(self, source: SlotId, target: SlotId) -> None:
        with self._recorder.call("move", source=source, target=target):
            self._backend.move(source, target)

    def release(self, slot: SlotId) -> None:
        with self._recorder.call("release", slot=slot):
            self._backend.release(slot)

    def keeper(self) -> StateKeeper | None:
        keeper = self._backend.keeper()
        return None if keeper is None else RecordedKeeper(keeper, self._recorder)


class RecordedKeeper:
    """A keeper of states; each call is written down."""

    def __init__(self, keeper: StateKeeper, recorder: Recorder) -> None:
        self._keeper = keeper
        self._recorder = recorder

    def save_rows(self, slot: SlotId, piece: PieceId, start: int) -> None:
        with self._recorder.call("save_rows", slot=slot, piece=piece, start=start):
            self._keeper.save_rows(slot, piece, start)

    def save_end(self, slot: SlotId, piece: PieceId) -> None:
        with self._recorder.call("save_end", slot=slot, piece=piece):
            self._keeper.save_end(slot, piece)

    def restore(self, slot: SlotId, rows: Sequence[PieceId], end: PieceId) -> None:
        with self._recorder.call("restore", slot=slot, rows=list(rows), end=end):
            self._keeper.restore(slot, rows, end)

    def drop(self, piece: PieceId) -> None:
        with self._recorder.call("drop", piece=piece):
            self._keeper.drop(piece)
