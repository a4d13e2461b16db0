"""Relays: they bring about what a check needs, and pass everything else on."""

from dataclasses import replace

import pytest
from receipts_bench import VOCAB_TOKENS, prompt

from hermitcrab.core.backend import DraftRequest, SlotId, Window
from hermitcrab.core.fake import FakeBackend
from hermitcrab.core.marks import LogitsMark
from hermitcrab.errors import LaneMemory
from hermitcrab.receipts.relays import (
    Cut,
    Recorder,
    ReluctantMoves,
    ScriptedDrafts,
    ShortPasses,
    SomeSlots,
    every_cut,
)
from hermitcrab.sampling.params import Sampling

GREEDY = Sampling()


def fake(*session_rows: int) -> FakeBackend:
    return FakeBackend(session_rows, vocab_tokens=VOCAB_TOKENS)


def test_every_cut_keeps_every_length_of_every_width_of_more_than_one_row() -> None:
    assert every_cut((1, 2, 3)) == (Cut(2, 1), Cut(2, 2), Cut(3, 1), Cut(3, 2), Cut(3, 3))
    assert every_cut((1, 3)) == (Cut(3, 1), Cut(3, 2), Cut(3, 3))


def test_some_slots_are_shown_in_the_order_given() -> None:
    backend = fake(32, 64, 96)
    some = SomeSlots(backend, (SlotId(2), SlotId(0)))
    assert some.facts().session_rows == (96, 32)
    some.prefill(SlotId(0), 0, (1, 2, 3))
    assert [backend.rows(slot) for slot in range(3)] == [0, 0, 3]
    some.release(SlotId(0))
    assert backend.is_empty(2)


def test_a_reluctant_move_is_refused_so_often_and_then_made() -> None:
    backend = fake(64, 96)
    reluctant = ReluctantMoves(backend, refusals=2)
    reluctant.prefill(SlotId(0), 0, (1, 2, 3))
    for _ in range(2):
        with pytest.raises(LaneMemory):
            reluctant.move(SlotId(0), SlotId(1))
    reluctant.move(SlotId(0), SlotId(1))
    assert backend.rows(1) == 3


@pytest.mark.parametrize(("asked", "rows"), [(3, 4), (4, 4), (5, 8), (40, 8)])
def test_short_passes_lie_on_the_grid_and_within_what_the_backend_takes(asked: int, rows: int) -> None:
    assert ShortPasses(fake(64), asked).facts().prompt_pass_rows == rows


def scripted(cuts: tuple[Cut, ...]) -> tuple[ScriptedDrafts, list[int]]:
    """A relay over a filled session whose first token is drawn, and the reply that it knows."""
    asked = prompt(1, 6)
    backend = fake(64)
    backend.prefill(SlotId(0), 0, asked)
    known = [backend.draw_first(SlotId(0), 6, GREEDY)]
    for row in range(20):
        known += backend.verify([Window(SlotId(0), 6 + row, (known[-1],), GREEDY)])[0].drawn
        backend.keep(SlotId(0), 1)
    relay = ScriptedDrafts(fake(64), {asked: tuple(known)}, {asked: cuts})
    relay.prefill(SlotId(0), 0, asked)
    relay.draw_first(SlotId(0), 6, GREEDY)
    return relay, known


def draft(relay: ScriptedDrafts, tokens: tuple[int, ...], *, depth: int = 3) -> tuple[int, ...]:
    (drafts,) = relay.draft([DraftRequest(SlotId(0), 5, tokens, depth, GREEDY)])
    return drafts


def test_scripted_drafts_are_right_up_to_the_cut_and_wrong_from_there() -> None:
    relay, known = scripted((Cut(4, 2),))
    right, *wrong = draft(relay, (known[0],))
    assert right == known[1]
    assert [token != expected for token, expected in zip(wrong, known[2:], strict=False)] == [True, True]


def test_scripted_drafts_bring_about_their_cut() -> None:
    relay, known = scripted((Cut(3, 2),))
    drafts = draft(relay, (known[0],))
    relay.verify([Window(SlotId(0), 6, (known[0], *drafts), GREEDY)])
    assert relay.seen == {Cut(3, 2)}


def test_scripted_drafts_never_pass_what_was_asked_for() -> None:
    relay, known = scripted((Cut(4, 4),))
    assert draft(relay, (known[0],), depth=1) == (known[1],)


def test_scripted_chains_reach_the_widest_window_whatever_the_head_can_do() -> None:
    relay = ScriptedDrafts(FakeBackend((64,), window_rows=9, backlog_rows=16, draft_depth=2), {}, {})
    assert relay.facts().draft_depth == 8


def test_a_recorder_notes_the_rows_that_stand_by_request_and_position() -> None:
    marks = [LogitsMark(bytes([place]), ()) for place in range(4)]
    waiting = [marks[:1], marks[1:]]
    recorder = Recorder(fake(64), lambda: waiting.pop(0))
    recorder.follow(lambda slot: "a request")
    recorder.prefill(SlotId(0), 0, (1, 2, 3))
    first = recorder.draw_first(SlotId(0), 3, GREEDY)
    wrong = replace(Window(SlotId(0), 3, (first, 0, 0), GREEDY))
    (verified,) = recorder.verify([wrong])
    standing = 1 if verified.drawn[0] else 2
    assert (
        list(recorder.marks["a request"].items())[: 1 + standing]
        == list(enumerate(marks, start=2))[: 1 + standing]
    )
    assert len(recorder.marks["a request"]) < 5
