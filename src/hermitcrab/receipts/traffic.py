"""Checks of random traffic: arrivals, lengths and cancels by a seed; and what a server says after it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from hermitcrab.core.backend import SlotId
from hermitcrab.receipts.cases import GREEDY, SHORT_LIST, WHOLE_LIST, Cases, Sessions
from hermitcrab.receipts.record import Outcome, Pair, judge
from hermitcrab.receipts.stand import Conditions, Stand

# a request comes before one step in four, and of those that run one step in thirty cancels one
_ARRIVAL = 0.25
_CANCEL = 1 / 30

# requests that may wait: enough that the queue is never empty, few enough that they are served soon
_MOST_OPEN = 24


@dataclass(frozen=True, slots=True)
class Weather:
    """What decides the traffic: the seed, and how long it lasts; no minutes means a count of arrivals."""

    seed: int
    minutes: float | None


def traffic(stand: Stand, cases: Cases, sessions: Sessions, weather: Weather) -> Iterator[Outcome]:
    """Random requests in growing sessions equal themselves alone, as far as each came."""
    random = Random(weather.seed)
    pool = [*cases.crowd(16, (GREEDY,)), *cases.crowd(16, (SHORT_LIST, WHOLE_LIST))]
    # one in five outgrows its session
    pool += [cases.grown(place % 2, sampling) for place in range(4) for sampling in (GREEDY, SHORT_LIST)]
    for case in pool:
        stand.alone(case)
    # few enough that requests wait, and replies that grow get in each other's way
    slots = (sessions.large_slots[0], *sessions.ladder_slots)
    run = stand.begin(Conditions(slots=[SlotId(slot) for slot in slots], grow_tokens=8, drafts_by_cost=True))
    started_s = stand.clock.now_s()
    asked = 0

    def is_raining() -> bool:
        if weather.minutes is not None:
            return stand.clock.now_s() - started_s < 60 * weather.minutes
        return asked < cases.scale.arrivals

    while is_raining():
        open_ids = run.open_ids
        if len(open_ids) < _MOST_OPEN and (not open_ids or random.random() < _ARRIVAL):
            case = random.choice(pool)
            run.submit(replace(case, max_new_tokens=random.randint(1, case.max_new_tokens)))
            asked += 1
        if open_ids and random.random() < _CANCEL:
            run.cancel(random.choice(open_ids))
        run.step()
    replies, status = run.finish(), run.status()
    cancelled = sum(reply.is_cancelled for reply in replies)
    yield judge(
        f"random traffic, seed {weather.seed}",
        stand.pairs(replies),
        seconds=stand.clock.now_s() - started_s,
        note=f"{asked} requests, {cancelled} cancelled, {status.moves} moves, {status.pauses} pauses",
    )


def after_traffic(stand: Stand, cases: Cases) -> Iterator[Outcome]:
    """What a backend says after all it has served equals what one says that has served nothing."""
    asked = [*cases.crowd(2, (GREEDY,)), *cases.crowd(1, (SHORT_LIST,))]
    used = [stand.run_alone(case) for case in asked]
    started_s = stand.clock.now_s()
    fresh = []
    for case in asked:
        stand.reopen()
        fresh.append(stand.run_alone(case))
    yield judge(
        "after other traffic = on a fresh engine",
        [Pair(new, old) for new, old in zip(fresh, used, strict=True)],
        seconds=stand.clock.now_s() - started_s,
        note=f"{len(fresh)} fresh engines",
    )
