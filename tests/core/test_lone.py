"""The lone driver: a stream that is all there is runs in it, leaves it for anything else, replies alike."""

import pytest
from fault_bench import Leaving
from hypothesis import given, settings
from hypothesis import strategies as st
from lane_bench import GREEDY, SAMPLED, Bench, ask, prompt_of, sized

from hermitcrab.core.api import Failed, Finished, FinishReason, Request
from hermitcrab.core.fake import Call, CallKind
from hermitcrab.errors import DeviceFailed, ShuttingDown
from hermitcrab.sampling.params import Sampling

SAMPLINGS = pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
DEPTHS = pytest.mark.parametrize("depth", [0, None], ids=["plain", "drafted"])


def one(sampling: Sampling = GREEDY, *, max_new_tokens: int = 40) -> Request:
    return ask("one", max_new_tokens=max_new_tokens, sampling=sampling)


def hand_overs(bench: Bench) -> tuple[int, int]:
    """Into the driver, and back into shared rounds."""
    status = bench.loop.take_snapshot()
    return status.handed_to_lone, status.handed_to_shared


def shared(request: Request, *, draft_depth: int | None = 0) -> tuple[list[int], list[Call]]:
    """Its tokens, and the calls made for it, in shared rounds all along: another request waits."""
    bench = sized(4096, draft_depth=draft_depth)
    bench.submit(request, ask("waits", max_new_tokens=1))
    while not bench.ears[request.id].terminals:
        bench.step()
    assert hand_overs(bench) == (0, 0)
    return bench.tokens(request.id), [call for call in bench.backend.calls if call.kind != CallKind.RELEASE]


@SAMPLINGS
@DEPTHS
def test_a_stream_that_is_all_there_is_makes_the_calls_and_the_reply_of_shared_rounds(
    sampling: Sampling, depth: int | None
) -> None:
    bench = sized(4096, draft_depth=depth)
    bench.submit(one(sampling))
    bench.run()
    tokens, calls = shared(one(sampling), draft_depth=depth)
    assert bench.tokens("one") == tokens
    assert [call for call in bench.backend.calls if call.kind != CallKind.RELEASE] == calls
    assert hand_overs(bench) == (1, 0)
    assert bench.is_clean


@SAMPLINGS
@DEPTHS
@pytest.mark.parametrize("steps", range(2, 12))
def test_a_request_that_arrives_takes_a_stream_out_of_the_driver_and_its_end_puts_it_back(
    sampling: Sampling, depth: int | None, steps: int
) -> None:
    bench = sized(256, 256, draft_depth=depth)
    long, brief = one(sampling, max_new_tokens=120), ask("brief", max_new_tokens=3)
    bench.submit(long)
    bench.step(steps)
    bench.submit(brief)
    bench.run()
    assert bench.tokens("one") == shared(long)[0]
    assert bench.tokens("brief") == shared(brief)[0]
    assert hand_overs(bench) == (2, 1)


def test_the_driver_is_left_before_the_next_round_when_a_request_comes_that_must_wait() -> None:
    bench = sized(64)
    bench.submit(one())
    bench.step_until_live("one")
    bench.step()
    bench.submit(ask("waits"))
    bench.step()
    assert hand_overs(bench) == (1, 1)


def test_one_that_gives_up_waiting_hears_its_end_before_the_next_lone_round() -> None:
    bench = sized(64)
    bench.submit(one(), ask("waits"))
    bench.step_until_live("one")
    bench.loop.cancel("waits")
    before = len(bench.backend.calls)
    heard_at: list[bool] = []
    bench.backend.on_call = lambda call: heard_at.append(bool(bench.ears["waits"].terminals))
    bench.step(2)
    assert len(bench.backend.calls) > before
    assert all(heard_at)
    assert hand_overs(bench) == (1, 0)


def test_a_stream_that_outgrows_its_session_leaves_the_driver_moves_and_comes_back() -> None:
    bench = sized(256, 24)
    bench.submit(one(max_new_tokens=150))
    bench.run()
    assert bench.ears["one"].terminal.usage.moves == 1
    assert hand_overs(bench) == (2, 1)
    assert bench.tokens("one") == shared(one(max_new_tokens=150))[0]


@pytest.mark.parametrize("way", ["cancel", "disconnect"])
def test_a_lone_stream_whose_client_goes_gives_its_session_back_before_another_round(way: str) -> None:
    bench = sized(64)
    bench.ears["one"] = ear = Leaving()
    bench.loop.submit(one(), ear)
    bench.step_until_live("one")
    bench.step()
    rounds = bench.loop.engine.totals.rounds
    if way == "cancel":
        bench.loop.cancel("one")
    else:
        ear.has_gone = True
    bench.run()
    assert isinstance(ear.terminal, Finished)
    assert ear.terminal.reason is FinishReason.CANCELLED
    # one more round shows that the client has gone
    assert bench.loop.engine.totals.rounds - rounds == (way == "disconnect")
    assert hand_overs(bench) == (1, 0)
    assert bench.is_clean


def test_a_shutdown_takes_a_stream_out_of_the_driver_and_lets_it_end() -> None:
    bench = sized(64)
    bench.submit(one())
    bench.step_until_live("one")
    bench.step()
    bench.loop.drain(ShuttingDown("ending", retry_after_s=5))
    bench.run()
    assert bench.tokens("one") == shared(one())[0]
    assert hand_overs(bench) == (1, 1)


@pytest.mark.parametrize("kind", [CallKind.VERIFY, CallKind.KEEP, CallKind.DRAFT, CallKind.RELEASE])
def test_a_call_that_fails_in_the_driver_is_one_end_and_the_next_is_served(kind: CallKind) -> None:
    bench = sized(64)
    bench.submit(one())
    bench.step_until_live("one")
    bench.step()
    bench.backend.fail_next(kind, DeviceFailed("the device failed"))
    bench.run()
    assert isinstance(bench.ears["one"].terminal, Finished if kind is CallKind.RELEASE else Failed)
    bench.submit(ask("next"))
    bench.run()
    assert bench.tokens("next") == shared(ask("next"))[0]
    bench.step()
    assert bench.is_clean


@settings(max_examples=80, deadline=None)
@given(
    gaps=st.lists(st.tuples(st.integers(1, 25), st.integers(1, 12)), min_size=1, max_size=6),
    sampling=st.sampled_from([GREEDY, SAMPLED]),
    depth=st.sampled_from([0, None]),
)
def test_any_comings_and_goings_of_others_leave_a_reply_as_it_is(
    gaps: list[tuple[int, int]], sampling: Sampling, depth: int | None
) -> None:
    bench = sized(256, 40, 40, draft_depth=depth)
    long = Request("one", prompt_of("one", 6), sampling, max_new_tokens=200)
    bench.submit(long)
    for number, (steps, tokens) in enumerate(gaps):
        bench.step(steps)
        bench.submit(ask(f"other {number}", max_new_tokens=tokens))
    bench.run()
    assert bench.tokens("one") == shared(long)[0]
    to_lone, to_shared = hand_overs(bench)
    assert to_shared <= to_lone + 1
    assert bench.is_clean
