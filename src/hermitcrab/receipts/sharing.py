"""Checks of rounds: crowds against each alone, drafts against none, every width and every cut of a window."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hermitcrab.core.backend import Backend, SlotId
from hermitcrab.receipts.cases import GREEDY, SHORT_LIST, WHOLE_LIST, Cases, Sessions, window_tokens
from hermitcrab.receipts.record import Case, Outcome, judge, not_available
from hermitcrab.receipts.relays import Cut, ScriptedDrafts, every_cut
from hermitcrab.receipts.stand import Conditions, Stand
from hermitcrab.sampling.params import Sampling

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
    replies = [reply for case in asked for reply in stand.run([case], _alone_drafted())[0]]
    drafted, accepted = (sum(getattr(reply, word) for reply in replies) for word in ("drafted", "accepted"))
    yield judge(
        name,
        stand.pairs(replies),
        seconds=stand.clock.now_s() - started_s,
        note=f"{accepted} of {drafted} drafts landed",
        missing=None if drafted else "nothing was drafted",
    )


def windows(stand: Stand, cases: Cases, sessions: Sessions) -> Iterator[Outcome]:
    """Every width of a window, kept at every length: one stream alone, then streams in shared rounds."""
    facts = stand.backend.facts()
    cuts = every_cut(facts.exact_widths)
    if facts.draft_depth == 0 or not cuts:
        yield not_available("every width and cut", "no windows of more than one row")
        return
    tokens = window_tokens(facts.window_rows)
    for word, samplings in SAMPLINGS.items():
        asked = [replace(case, max_new_tokens=tokens) for case in cases.crowd(3, samplings)]
        alone = Conditions(slots=(SlotId(0),))
        yield _cut_windows(
            f"every width and cut, alone, {word}", stand, [[case] for case in asked], cuts, alone
        )
        # one each by its prompt, since the script knows a reply by that
        slots = [SlotId(slot) for slot in sessions.large_slots]
        shared = Conditions(slots=slots, grow_tokens=tokens)
        yield _cut_windows(f"every width and cut, shared, {word}", stand, [asked], cuts, shared)


def _cut_windows(
    name: str, stand: Stand, crowds: Sequence[Sequence[Case]], cuts: Sequence[Cut], conditions: Conditions
) -> Outcome:
    known = {case.prompt: stand.alone(case).tokens for crowd in crowds for case in crowd}
    started_s = stand.clock.now_s()
    replies, seen = [], set[Cut]()
    for crowd in crowds:
        relays: list[ScriptedDrafts] = []

        def wrap(backend: Backend, relays: list[ScriptedDrafts] = relays) -> Backend:
            relays.append(ScriptedDrafts(backend, known, cuts))
            return relays[0]

        replies += stand.run(crowd, replace(conditions, wrap=wrap))[0]
        seen |= relays[0].seen
    lacking = [cut for cut in cuts if cut not in seen]
    return judge(
        name,
        stand.pairs(replies),
        seconds=stand.clock.now_s() - started_s,
        note=f"{len(cuts)} cuts",
        missing=f"{len(lacking)} of {len(cuts)} cuts never came about" if lacking else None,
    )


def _alone_drafted() -> Conditions:
    return Conditions(slots=(SlotId(0),))
