"""The strict fake: a wrong roll-back, length, move or order changes the reply or raises."""

from collections.abc import Callable

import pytest
from lane_bench import prompt_of

from hermitcrab.core.backend import Backend, DraftRequest, SlotId, Window
from hermitcrab.core.fake import Call, CallKind, FakeBackend, Fault
from hermitcrab.errors import DeviceFailed, LaneError, LaneMemory, SessionFull, StateNotSettled
from hermitcrab.sampling.params import Sampling

GREEDY = Sampling()
A, B, C = SlotId(0), SlotId(1), SlotId(2)
PROMPT = prompt_of("fake", 8)


def filled(**options: object) -> FakeBackend:
    """Slot B holds a prompt of 8 and its first token is absorbed; sessions of 64, 24 and 24 rows."""
    fake = FakeBackend((64, 24, 24), **options)  # type: ignore[arg-type]  # passed on as given
    fake.prefill(B, 0, PROMPT)
    first = fake.draw_first(B, 8, GREEDY)
    fake.draft([DraftRequest(B, 7, (first,), 3, GREEDY)])
    return fake


def pending(fake: FakeBackend) -> int:
    return FakeBackend.draw_first(filled(), B, 8, GREEDY) if fake.rows(1) == 8 else 0


def window(fake: FakeBackend, *drafts: int, position: int = 8) -> Window:
    return Window(B, position, (pending(fake), *drafts), GREEDY)


def test_the_fake_is_a_backend() -> None:
    backend: Backend = FakeBackend((64,))
    assert backend.facts().session_rows == (64,)


def test_a_token_follows_from_every_token_before_it() -> None:
    firsts = []
    for changed in range(8):
        fake = FakeBackend((64,), vocab_tokens=4096)
        fake.prefill(A, 0, [token + (place == changed) for place, token in enumerate(PROMPT)])
        firsts.append(fake.draw_first(A, 8, GREEDY))
    assert len(set(firsts)) == 8


def test_a_row_of_the_reply_is_not_a_row_of_the_prompt() -> None:
    decoded, prefilled = (FakeBackend((64,), vocab_tokens=4096) for _ in range(2))
    decoded.prefill(A, 0, PROMPT)
    token = decoded.draw_first(A, 8, GREEDY)
    after = decoded.verify([Window(A, 8, (token,), GREEDY)])[0].drawn[0]
    prefilled.prefill(A, 0, PROMPT)
    prefilled.prefill(A, 8, [token])
    assert prefilled.draw_first(A, 9, GREEDY) != after


def test_a_wrong_roll_back_changes_what_follows() -> None:
    drawn = []
    for rows in (1, 2):
        fake = filled(vocab_tokens=4096)
        first = fake.draw_first(B, 8, GREEDY)
        fake.verify([Window(B, 8, (first, 5), GREEDY)])
        fake.keep(B, rows)
        drawn.append(fake.verify([Window(B, 8 + rows, (7,), GREEDY)])[0].drawn)
    assert drawn[0] != drawn[1]


def test_rejected_rows_are_as_if_never_run() -> None:
    drawn = []
    for drafts in ((), (5,), (5, 6, 7)):
        fake = filled(vocab_tokens=4096)
        first = fake.draw_first(B, 8, GREEDY)
        fake.verify([Window(B, 8, (first, *drafts), GREEDY)])
        fake.keep(B, 1)
        drawn.append(fake.verify([Window(B, 9, (7,), GREEDY)])[0].drawn)
    assert len(set(drawn)) == 1


def test_drafts_that_land_are_the_targets_own_draws() -> None:
    fake = FakeBackend((64,))
    fake.prefill(A, 0, PROMPT)
    first = fake.draw_first(A, 8, GREEDY)
    (drafts,) = fake.draft([DraftRequest(A, 7, (first,), 3, GREEDY)])
    (verified,) = fake.verify([Window(A, 8, (first, *drafts), GREEDY)])
    assert verified.drawn[:3] == drafts


def test_drafts_that_miss_are_others() -> None:
    fake = FakeBackend((64,), lands=lambda position, index: index != 1)
    fake.prefill(A, 0, PROMPT)
    first = fake.draw_first(A, 8, GREEDY)
    (drafts,) = fake.draft([DraftRequest(A, 7, (first,), 3, GREEDY)])
    (verified,) = fake.verify([Window(A, 8, (first, *drafts), GREEDY)])
    assert [draft == drawn for draft, drawn in zip(drafts, verified.drawn, strict=False)] == [
        True,
        False,
        True,
    ]


def test_a_seed_changes_the_draws_of_a_sampled_reply() -> None:
    fake = FakeBackend((64,), vocab_tokens=512)
    fake.prefill(A, 0, PROMPT)
    drawn = {fake.draw_first(A, 8, Sampling(temperature=5.0, seed=seed)) for seed in range(20)}
    assert len(drawn) > 10


def test_a_script_gives_the_replys_tokens_and_then_the_hash_does() -> None:
    fake = FakeBackend((64,), script=lambda prompt: (3, 1, 2) if prompt == PROMPT else ())
    fake.prefill(A, 0, PROMPT)
    assert fake.draw_first(A, 8, GREEDY) == 3
    (verified,) = fake.verify([Window(A, 8, (3, 1, 2), GREEDY)])
    assert verified.drawn[:2] == (1, 2)


def test_a_script_is_left_once_the_reply_has_left_it() -> None:
    drawn = []
    for script in ((3, 1, 2), ()):
        fake = FakeBackend((64,), vocab_tokens=4096, script=lambda prompt, script=script: script)
        fake.prefill(A, 0, PROMPT)
        drawn.append(fake.verify([Window(A, 8, (4, 1), GREEDY)])[0].drawn)
    assert drawn[0] == drawn[1]


def test_a_moved_session_goes_on_with_the_same_tokens() -> None:
    moved, stayed = filled(vocab_tokens=4096), filled(vocab_tokens=4096)
    first = moved.draw_first(B, 8, GREEDY)
    moved.move(B, A)
    moved.release(B)
    there = moved.verify([Window(A, 8, (first, 5), GREEDY)])
    assert there == stayed.verify([Window(B, 8, (first, 5), GREEDY)])


MISUSES: dict[str, tuple[Callable[[FakeBackend], object], type[LaneError]]] = {
    "a pass that skips rows": (lambda fake: fake.prefill(C, 4, [1]), StateNotSettled),
    "a pass into a used session": (lambda fake: fake.prefill(B, 0, [1]), StateNotSettled),
    "an empty pass": (lambda fake: fake.prefill(C, 0, []), StateNotSettled),
    "a pass longer than allowed": (lambda fake: fake.prefill(C, 0, [1] * 9), StateNotSettled),
    "a pass off the grid": (
        lambda fake: (fake.prefill(C, 0, [1] * 3), fake.prefill(C, 3, [1])),
        StateNotSettled,
    ),
    "a pass past the session": (
        lambda fake: [fake.prefill(C, position, [1] * 8) for position in range(0, 32, 8)],
        SessionFull,
    ),
    "a token outside the vocabulary": (lambda fake: fake.prefill(C, 0, [16]), LaneError),
    "a first draw from an empty session": (lambda fake: fake.draw_first(C, 0, GREEDY), StateNotSettled),
    "a first draw at another length": (lambda fake: fake.draw_first(B, 7, GREEDY), StateNotSettled),
    "a first draw in a reply": (
        lambda fake: (fake.verify([window(fake)]), fake.keep(B, 1), fake.draw_first(B, 9, GREEDY)),
        StateNotSettled,
    ),
    "a window at another length": (lambda fake: fake.verify([window(fake, position=7)]), StateNotSettled),
    "a window on an unsettled session": (
        lambda fake: (fake.verify([window(fake)]), fake.verify([window(fake)])),
        StateNotSettled,
    ),
    "a window on an empty session": (lambda fake: fake.verify([Window(C, 0, (1,), GREEDY)]), StateNotSettled),
    "a window that starts with another token": (
        lambda fake: fake.verify([Window(B, 8, ((pending(fake) + 1) % 16,), GREEDY)]),
        StateNotSettled,
    ),
    "a window longer than allowed": (lambda fake: fake.verify([window(fake, 1, 2, 3, 4)]), StateNotSettled),
    "two windows of one slot": (lambda fake: fake.verify([window(fake), window(fake)]), StateNotSettled),
    "a round without windows": (lambda fake: fake.verify([]), StateNotSettled),
    "a keep without a window": (lambda fake: fake.keep(B, 1), StateNotSettled),
    "a keep of no row": (lambda fake: (fake.verify([window(fake)]), fake.keep(B, 0)), StateNotSettled),
    "a keep of more rows than ran": (
        lambda fake: (fake.verify([window(fake)]), fake.keep(B, 2)),
        StateNotSettled,
    ),
    "drafting for no stream": (lambda fake: fake.draft([]), StateNotSettled),
    "absorbing a row twice": (
        lambda fake: fake.draft([DraftRequest(B, 7, (1,), 1, GREEDY)]),
        StateNotSettled,
    ),
    "absorbing before the end of the session": (
        lambda fake: (
            fake.verify([window(fake, 1)]),
            fake.keep(B, 2),
            fake.draft([DraftRequest(B, 8, (1,), 1, GREEDY)]),
        ),
        StateNotSettled,
    ),
    "absorbing other tokens than the session's": (
        lambda fake: (
            fake.verify([window(fake, 1)]),
            fake.keep(B, 2),
            fake.draft([DraftRequest(B, 8, (2, 1), 1, GREEDY)]),
        ),
        StateNotSettled,
    ),
    "more drafts than the head holds": (
        lambda fake: (
            fake.verify([window(fake)]),
            fake.keep(B, 1),
            fake.draft([DraftRequest(B, 8, (1,), 4, GREEDY)]),
        ),
        StateNotSettled,
    ),
    "a move of an unsettled session": (
        lambda fake: (fake.verify([window(fake)]), fake.move(B, A)),
        StateNotSettled,
    ),
    "a move of an empty session": (lambda fake: fake.move(C, A), StateNotSettled),
    "a move into a used session": (lambda fake: (fake.prefill(A, 0, [1]), fake.move(B, A)), StateNotSettled),
    "a move into a session no larger": (lambda fake: fake.move(B, C), StateNotSettled),
}


@pytest.mark.parametrize("misuse", MISUSES)
def test_a_call_that_does_not_follow_from_the_state_raises_and_is_noted(misuse: str) -> None:
    act, error = MISUSES[misuse]
    fake = filled()
    assert fake.violations == []
    with pytest.raises(error):
        act(fake)
    assert len(fake.violations) == 1


def test_a_window_past_the_session_raises() -> None:
    fake = FakeBackend((9,))
    fake.prefill(A, 0, PROMPT)
    with pytest.raises(SessionFull):
        fake.verify([Window(A, 8, (1, 2), GREEDY)])


def test_drafts_that_could_not_be_verified_in_the_session_raise() -> None:
    fake = FakeBackend((10,))
    fake.prefill(A, 0, PROMPT)
    first = fake.draw_first(A, 8, GREEDY)
    with pytest.raises(StateNotSettled):
        fake.draft([DraftRequest(A, 7, (first,), 2, GREEDY)])


def test_a_round_over_the_row_limit_raises() -> None:
    fake = FakeBackend((64,), row_limit=2)
    fake.prefill(A, 0, PROMPT)
    with pytest.raises(StateNotSettled):
        fake.verify([Window(A, 8, (1, 2, 3), GREEDY)])


def test_a_fault_is_raised_at_the_call_it_names() -> None:
    fake = FakeBackend((64,), faults=[Fault(CallKind.PREFILL, 2, DeviceFailed("scripted"))])
    fake.prefill(A, 0, PROMPT)
    with pytest.raises(DeviceFailed, match="scripted"):
        fake.prefill(A, 8, [1])


def test_a_session_named_by_a_failed_call_may_only_be_released() -> None:
    fake = filled()
    fake.fail_next(CallKind.VERIFY, DeviceFailed("scripted"))
    with pytest.raises(DeviceFailed):
        fake.verify([window(fake)])
    with pytest.raises(StateNotSettled):
        fake.verify([window(fake)])
    fake.release(B)
    assert fake.is_empty(1)


def test_a_failed_copy_spoils_both_sessions() -> None:
    fake = filled()
    fake.fail_next(CallKind.MOVE, DeviceFailed("scripted"))
    with pytest.raises(DeviceFailed):
        fake.move(B, A)
    assert not fake.is_empty(0)
    with pytest.raises(StateNotSettled):
        fake.move(B, A)


def test_a_move_refused_for_memory_leaves_both_sessions_as_they_were() -> None:
    fake = filled()
    fake.fail_next(CallKind.MOVE, LaneMemory("scripted"))
    with pytest.raises(LaneMemory):
        fake.move(B, A)
    fake.move(B, A)
    assert fake.rows(0) == 8


def test_the_hook_sees_every_call_before_it_acts() -> None:
    seen: list[tuple[Call, int]] = []
    fake = FakeBackend((64,))
    fake.on_call = lambda call: seen.append((call, fake.rows(0)))
    fake.prefill(A, 0, PROMPT)
    fake.release(A)
    assert seen == [
        (Call(CallKind.PREFILL, (A,), (8,)), 0),
        (Call(CallKind.RELEASE, (A,), (0,)), 8),
    ]
    assert [call for call, _ in seen] == fake.calls
