"""Checks of sized sessions: replies that move, outgrow together, pause often, or stand at the edge."""

from collections.abc import Iterator
from functools import partial

from hermitcrab.core.api import Status
from hermitcrab.core.backend import Backend, SlotId
from hermitcrab.core.slot_list import rows_of
from hermitcrab.receipts.cases import GREEDY, SHORT_LIST, Cases, Sessions
from hermitcrab.receipts.record import Case, Outcome, Reply, judge, not_available
from hermitcrab.receipts.relays import Cut, ReluctantMoves, ScriptedDrafts
from hermitcrab.receipts.stand import Conditions, Stand

# times in a row that a forced pause is kept from ending
REFUSALS = 3


def growth(stand: Stand, cases: Cases, sessions: Sessions) -> Iterator[Outcome]:
    """Receipts 3, 4 and 6, and pauses forced at every step of the ladder."""
    ladder = [SlotId(slot) for slot in sessions.ladder_slots]
    yield _moves_twice(stand, cases, ladder)
    yield _two_outgrow(stand, cases, ladder)
    yield _pauses(stand, cases, ladder)
    yield _near_the_limit(stand, cases, sessions)


def _moves_twice(stand: Stand, cases: Cases, ladder: list[SlotId]) -> Outcome:
    asked = [cases.grown(0, sampling) for sampling in (GREEDY, SHORT_LIST)]
    conditions = Conditions(slots=ladder[1:], grow_tokens=1)
    moves, replies = [], []
    for case in asked:
        stand.alone(case)
    started_s = stand.clock.now_s()
    for case in asked:
        (reply,), _ = stand.run([case], conditions)
        replies.append(reply)
        moves.append(reply.moves)
    return judge(
        "a growing reply = one that never moved",
        stand.pairs(replies),
        receipt="3",
        seconds=stand.clock.now_s() - started_s,
        note=f"{moves} moves",
        missing=None if min(moves) >= 2 else f"only {moves} moves",
    )


def _two_outgrow(stand: Stand, cases: Cases, ladder: list[SlotId]) -> Outcome:
    asked = [cases.grown(place, GREEDY) for place in (0, 1)]
    # two small ones, one that holds either reply to its end
    conditions = Conditions(slots=(ladder[-1], *ladder[:2]), grow_tokens=1)
    replies, status, seconds = _timed(stand, asked, conditions)
    is_shown = status.pauses == 1 and [reply.moves for reply in replies] == [1, 1]
    return judge(
        "two outgrow together, one session free",
        stand.pairs(replies),
        receipt="4",
        seconds=seconds,
        note=f"{status.moves} moves, {status.pauses} pause",
        missing=None if is_shown else f"{status.moves} moves and {status.pauses} pauses instead of 2 and 1",
    )


def _pauses(stand: Stand, cases: Cases, ladder: list[SlotId]) -> Outcome:
    asked = [cases.grown(0, GREEDY), cases.grown(1, SHORT_LIST)]
    conditions = Conditions(slots=ladder, grow_tokens=1, wrap=partial(ReluctantMoves, refusals=REFUSALS))
    replies, status, seconds = _timed(stand, asked, conditions)
    # none moved without a pause before it
    is_shown = status.pauses >= status.moves and min(reply.moves for reply in replies) >= 2
    return judge(
        f"a pause every {cases.scale.step_tokens} tokens",
        stand.pairs(replies),
        seconds=seconds,
        note=f"{status.pauses} pauses, {status.moves} moves",
        missing=None if is_shown else f"only {status.pauses} pauses and {status.moves} moves",
    )


def _near_the_limit(stand: Stand, cases: Cases, sessions: Sessions) -> Outcome:
    """In a session that holds the reply to its last row, with every draft but one rejected."""
    name, receipt = "at the edge of its session, one draft landing", "6"
    facts = stand.backend.facts()
    widest = facts.exact_widths[-1]
    if facts.draft_depth == 0 or widest < 2:
        return not_available(name, "no windows of more than one row", receipt=receipt)
    slot = sessions.ladder_slots[2]
    prompt_tokens = len(cases.grown(0, GREEDY).prompt)
    room = rows_of(sessions.tokens[slot]) - prompt_tokens - facts.window_rows
    case = cases.grown(0, GREEDY, room)
    known = {case.prompt: stand.alone(case).tokens}

    def wrap(backend: Backend) -> Backend:
        return ScriptedDrafts(backend, known, {case.prompt: (Cut(widest, 2),)})

    # a larger session is there to be moved to, if it were to move
    conditions = Conditions(
        slots=(SlotId(slot), SlotId(slot + 1)), grow_tokens=case.max_new_tokens, wrap=wrap
    )
    replies, status, seconds = _timed(stand, [case], conditions)
    is_shown = status.pauses == status.moves == 0
    return judge(
        name,
        stand.pairs(replies),
        receipt=receipt,
        seconds=seconds,
        note=f"{replies[0].accepted} of {replies[0].drafted} drafts landed; no move, no pause",
        missing=None if is_shown else f"{status.moves} moves, {status.pauses} pauses",
    )


def _timed(stand: Stand, asked: list[Case], conditions: Conditions) -> tuple[list[Reply], Status, float]:
    for case in asked:
        stand.alone(case)
    started_s = stand.clock.now_s()
    replies, status = stand.run(asked, conditions)
    return replies, status, stand.clock.now_s() - started_s
