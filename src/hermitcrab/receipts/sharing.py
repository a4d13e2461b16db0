"""Checks of rounds: crowds against each alone, drafts against none, every width and every cut of a window."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from hermitcrab.core.backend import Backend, SlotId
from hermitcrab.receipts.cases import GREEDY, SHORT_LIST, WHOLE_LIST, Cases, Sessions, deal_tokens
from hermitcrab.receipts.record import Case, Outcome, Reply, judge, not_available
from hermitcrab.receipts.relays import Cut, ScriptedDrafts
from hermitcrab.receipts.stand import Conditions, Stand
from hermitcrab.sampling.params import Sampling

# one stream, in the session that holds everything
_ALONE = Conditions(slots=(SlotId(0),))

SAMPLINGS: dict[str, tuple[Sampling, ...]] = {"greedy": (GREEDY,), "seeded": (SHORT_LIST, WHOLE_LIST)}


def concurrency(stand: Stand, cases: Cases, sessions: Sessions) -> Iterator[Outcome]:
    """Receipt 1: so many at once, drafted, equal each alone."""
    for word, samplings in SAMPLINGS.items():
        for streams in cases.scale.streams:
            asked = cases.crowd(streams, samplings)
            for case in asked:
                stand.alone(case)
            slots = (*sessions.large_slots, *sessions.middle_slots)
            conditions = Conditions(
                slots=[SlotId(slot) for slot in slots], grow_tokens=cases.scale.reply_tokens
            )
            started_s = stand.clock.now_s()
            replies, status = stand.run(asked, conditions)
            seconds = stand.clock.now_s() - started_s
            note = f"{status.reply_tokens / seconds:.0f} tok/s" if seconds else ""
            yield judge(
                f"{streams} at once, {word}", stand.pairs(replies), receipt="1", seconds=seconds, note=note
            )


def drafting(stand: Stand, cases: Cases) -> Iterator[Outcome]:
    """Drafts on against drafts off, alone."""
    name = "drafts on = drafts off"
    if stand.backend.facts().draft_depth == 0:
        yield not_available(name, "no draft head")
        return
    asked = [*cases.crowd(3, (GREEDY,)), *cases.crowd(3, (SHORT_LIST, WHOLE_LIST))]
    for case in asked:
        stand.alone(case)
    started_s = stand.clock.now_s()
    replies = [reply for case in asked for reply in stand.run([case], _ALONE)[0]]
    drafted, accepted = (sum(getattr(reply, word) for reply in replies) for word in ("drafted", "accepted"))
    yield judge(
        name,
        stand.pairs(replies),
        seconds=stand.clock.now_s() - started_s,
        note=f"{accepted} of {drafted} drafts landed",
        missing=None if drafted else "nothing was drafted",
    )


def windows(stand: Stand, cases: Cases, sessions: Sessions) -> Iterator[Outcome]:
    """Every width of a window, cut at every length (or some): streams alone, then in shared rounds."""
    facts = stand.backend.facts()
    deals = cases.deals(facts.exact_widths)
    if facts.draft_depth == 0 or not any(deals):
        yield not_available("every width and cut", "no windows of more than one row")
        return
    what = "every width and cut" if cases.scale.has_every_cut else "every width, some cuts"
    shared = Conditions(
        slots=[SlotId(slot) for slot in sessions.large_slots], grow_tokens=cases.scale.reply_tokens
    )
    for word, samplings in SAMPLINGS.items():
        asked = [
            replace(case, max_new_tokens=deal_tokens(deal, facts.window_rows))
            for case, deal in zip(cases.crowd(len(deals), samplings), deals, strict=True)
        ]
        cuts = {case.prompt: deal for case, deal in zip(asked, deals, strict=True)}
        yield _cut_windows(f"{what}, alone, {word}", stand, [[case] for case in asked], cuts, _ALONE)
        yield _cut_windows(f"{what}, shared, {word}", stand, [asked], cuts, shared)


def _cut_windows(
    name: str,
    stand: Stand,
    crowds: Sequence[Sequence[Case]],
    cuts: Mapping[tuple[int, ...], Sequence[Cut]],
    conditions: Conditions,
) -> Outcome:
    known = {case.prompt: stand.alone(case).tokens for crowd in crowds for case in crowd}
    started_s = stand.clock.now_s()
    replies: list[Reply] = []
    seen: set[Cut] = set()
    for crowd in crowds:
        relays: list[ScriptedDrafts] = []

        def wrap(backend: Backend, relays: list[ScriptedDrafts] = relays) -> Backend:
            relays.append(ScriptedDrafts(backend, known, cuts))
            return relays[0]

        replies += stand.run(crowd, replace(conditions, wrap=wrap))[0]
        seen |= relays[0].seen
    wanted = {cut for deal in cuts.values() for cut in deal}
    lacking = len(wanted - seen)
    return judge(
        name,
        stand.pairs(replies),
        seconds=stand.clock.now_s() - started_s,
        note=f"{len(wanted)} cuts of windows of up to {max(cut.rows for cut in wanted)} rows",
        missing=f"{lacking} of {len(wanted)} cuts never came about" if lacking else None,
    )
