"""Checks of prompt passes: the reply does not tell how its prompt was cut, nor what ran between the cuts."""

from collections.abc import Iterator
from functools import partial

from hermitcrab.core.backend import SlotId
from hermitcrab.receipts.cases import GREEDY, SHORT_LIST, Cases, Sessions
from hermitcrab.receipts.record import Outcome, judge, not_available
from hermitcrab.receipts.relays import ShortPasses
from hermitcrab.receipts.stand import Conditions, Stand

# rounded up to the backend's grid; not multiples of it, so that a backend without one is cut anywhere
PASS_ROWS = (40, 100)


def prompt_cuts(stand: Stand, cases: Cases, sessions: Sessions) -> Iterator[Outcome]:
    """Long prompts in short passes, alone and with other replies between the passes."""
    name = "prompts in other passes"
    if not cases.long:
        yield not_available(name, "no room for a long prompt")
        return
    crowd = cases.crowd(8, (GREEDY, SHORT_LIST))
    asked = [case for case in crowd if case.prompt in cases.long]
    for case in crowd:
        stand.alone(case)
    slots = [SlotId(slot) for slot in (*sessions.large_slots, *sessions.middle_slots)]
    replies = []
    started_s = stand.clock.now_s()
    for rows in PASS_ROWS:
        for case in asked:
            alone = Conditions(slots=slots[:1], wrap=partial(ShortPasses, pass_rows=rows))
            replies += stand.run([case], alone)[0]
    shared = Conditions(
        slots=slots,
        grow_tokens=cases.scale.reply_tokens,
        wrap=partial(ShortPasses, pass_rows=PASS_ROWS[0]),
    )
    replies += stand.run(crowd, shared)[0]
    yield judge(
        name,
        stand.pairs(replies),
        seconds=stand.clock.now_s() - started_s,
        note=f"passes of {', '.join(str(rows) for rows in PASS_ROWS)} rows, rounded up to the grid",
    )
