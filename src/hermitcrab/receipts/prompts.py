"""Checks of prompts: a reply does not tell how its prompt was cut, nor whether it was kept before."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from hermitcrab.core.backend import SlotId
from hermitcrab.core.kept import CacheRules
from hermitcrab.receipts.cases import GREEDY, SHORT_LIST, Cases, Sessions
from hermitcrab.receipts.record import Case, Outcome, judge, not_available
from hermitcrab.receipts.relays import ShortPasses
from hermitcrab.receipts.stand import Conditions, Stand

# rounded up to the backend's grid; not multiples of it, so that a backend without one is cut anywhere
PASS_ROWS = (40, 100)

# holds a few states of a large model
CACHE_BYTES = 1 << 30


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


def resumed_prompts(stand: Stand, cases: Cases) -> Iterator[Outcome]:
    """Long prompts again, with another end, and edited, together and from kept states, against fresh ones."""
    name = "prompts from kept states"
    if not cases.long or stand.backend.facts().piece_costs is None:
        yield not_available(name, "no room for a long prompt" if not cases.long else "no state can be kept")
        return
    asked = [case for case in cases.crowd(8, (GREEDY, SHORT_LIST)) if case.prompt in cases.long]
    crowds = [asked, asked, [_edited(case) for case in asked], asked]
    for case in (case for crowd in crowds for case in crowd):
        stand.alone(case)
    run = stand.begin(Conditions(cache=CacheRules(CACHE_BYTES)))
    started_s = stand.clock.now_s()
    for crowd in crowds:
        for case in crowd:
            run.submit(case)
        while run.has_requests:
            run.step()
    replies, cache = run.finish(), run.status().cache
    run.close()
    yield judge(
        name,
        stand.pairs(replies),
        seconds=stand.clock.now_s() - started_s,
        note=f"{cache.hits} resumed, {cache.reused_tokens} tokens reused",
        missing=None if cache.hits else "no prompt resumed",
    )


def _edited(case: Case) -> Case:
    """The case with another last third of its prompt."""
    cut = len(case.prompt) * 2 // 3
    return replace(
        case, name=f"{case.name}, edited", prompt=(*case.prompt[:cut], *case.prompt[: len(case.prompt) - cut])
    )
