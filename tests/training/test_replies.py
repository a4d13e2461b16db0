"""What the evaluation counts: replies as they are served, and drafts that stood."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from training.data.counts import Count
from training.data.documents import Encoder, Talk, user
from training.evaluate import draft_figures, is_exact
from training.replies import Ask, DraftCount, DraftWatch, Reply, replies

from hermitcrab.core.backend import SlotId, Verified, Window
from hermitcrab.core.fake import FakeBackend
from hermitcrab.models.registry import family_of
from hermitcrab.sampling.params import Sampling

EOS = 2


class Scripted(FakeBackend):
    """Draws what it is told to."""

    drawn: tuple[int, ...] = ()

    def verify(self, windows: Sequence[Window]) -> list[Verified]:
        return [Verified(self.drawn) for _ in windows]


def counted(drafts: tuple[int, ...], drawn: tuple[int, ...]) -> list[DraftCount]:
    """The counts after one window of a pending token and three drafts."""
    backend = Scripted((64,))
    backend.drawn = drawn
    watch = DraftWatch(backend, frozenset({EOS}))
    watch.verify([Window(SlotId(0), 0, (9, *drafts), Sampling())])
    return watch.depths


def test_drafts_stand_up_to_the_first_that_is_not_drawn() -> None:
    assert counted((5, 6, 7), (5, 8, 7, 4)) == [DraftCount(1, 1, 1), DraftCount(1, 1, 0), DraftCount(1, 0, 0)]


def test_drafts_behind_the_end_of_a_reply_count_for_nothing() -> None:
    assert counted((5, EOS, 7), (5, EOS, 3, 4)) == [DraftCount(1, 1, 1), DraftCount(1, 1, 1), DraftCount()]


def test_a_share_is_of_all_drafts_and_the_other_of_those_reached() -> None:
    figures = draft_figures([DraftCount(4, 4, 3), DraftCount(4, 3, 3)])
    assert figures["share"] == 0.75
    assert figures["depth_2"] == {"drafted": 4, "reached": 3, "stood": 3, "share": 0.75, "given_earlier": 1.0}


@pytest.mark.parametrize(
    ("ids", "ended", "exact"), [((4, 5), True, True), ((4, 5), False, False), ((4,), True, False)]
)
def test_a_reply_is_exact_only_if_it_is_whole_and_has_ended(
    ids: tuple[int, ...], ended: bool, exact: bool
) -> None:
    ask = Ask(prompt=(1,), answer=(4, 5), most_tokens=9, shown="")
    assert is_exact(ask, Reply(ids, ended_by_itself=ended)) is exact


def test_the_built_in_model_counts_and_its_drafts_stand(builtin: Path, encoder: Encoder) -> None:
    asks = [
        Ask(
            tuple(encoder.prompt(Talk([user(f"Count from {start} to {start + 40}")])).tolist()),
            tuple(encoder.digits(Count(start, start + 40, 1).text()).tolist()),
            most_tokens=400,
            shown="",
        )
        for start in (1, 990)
    ]
    checkpoint = family_of(builtin).load(builtin, None)
    found, depths = replies(checkpoint, asks, eos_ids=checkpoint.eos_ids, sessions=2, session_rows=512)
    assert all(is_exact(ask, reply) for ask, reply in zip(asks, found, strict=True))
    assert sum(depth.stood for depth in depths) > 0.8 * sum(depth.drafted for depth in depths)
