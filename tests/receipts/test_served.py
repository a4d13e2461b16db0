"""Parity against a running server: the real application on the strict fake backend, over a socket."""

import pytest
from served import RANDOM, Served, listening, serving

from hermitcrab.clock import ScriptedClock
from hermitcrab.core.fake import Call
from hermitcrab.errors import RequestError
from hermitcrab.receipts.cases import Scale
from hermitcrab.receipts.record import Outcome, Verdict
from hermitcrab.receipts.served import Answer, Question, Server, compare, run_served
from hermitcrab.receipts.traffic import Weather
from hermitcrab.server.text.chat import ChatText

SCALE = Scale(
    streams=(3, 8), reply_tokens=12, grown_tokens=80, step_tokens=16, arrivals=10, has_every_cut=False
)


def run(served: Served) -> dict[str, Outcome]:
    with listening(served.app) as port:
        outcomes = run_served(
            f"http://127.0.0.1:{port}/", SCALE, Weather(2, None), ScriptedClock(), api_key=None
        )
        return {outcome.name: outcome for outcome in outcomes}


@pytest.fixture(scope="module")
def found(text: ChatText) -> dict[str, Outcome]:
    with serving(text, session_rows=(512, 128, 96, 96, 96), grow_tokens=8) as served:
        return run(served)


def test_a_server_without_faults_is_equal_in_all_that_can_be_asked(found: dict[str, Outcome]) -> None:
    made = {name: outcome for name, outcome in found.items() if outcome.replies}
    assert {outcome.verdict for outcome in made.values()} == {Verdict.EQUAL}, made
    assert set(made) == {
        "3 at once, greedy",
        "8 at once, greedy",
        "3 at once, seeded",
        "8 at once, seeded",
        "replies in growing sessions",
        "random traffic, seed 2",
    }


def test_what_needs_this_process_is_listed_as_not_available(found: dict[str, Outcome]) -> None:
    assert found["every width and cut"].verdict is Verdict.NOT_AVAILABLE
    assert found["check at load"].verdict is Verdict.NOT_AVAILABLE
    assert found["check at load"].note == "the server has not run it"


def test_replies_that_do_not_outgrow_their_sessions_show_no_growth(text: ChatText) -> None:
    with serving(text, session_rows=(4096, 2048), grow_tokens=1024) as served:
        assert run(served)["replies in growing sessions"].verdict is Verdict.NOT_SHOWN


def test_sessions_of_one_size_have_no_growth_to_check(text: ChatText) -> None:
    with serving(text, session_rows=(512, 512)) as served:
        assert run(served)["replies in growing sessions"].verdict is Verdict.NOT_AVAILABLE


def answer(text: str, sha256: str = "x", *, cancel_after: int | None = None) -> Answer:
    return Answer(Question(RANDOM, "greedy", 8, cancel_after), text, sha256, tokens=8)


def test_another_text_differs_where_it_first_does() -> None:
    difference = compare("q", answer("one two three"), answer("one two four"))
    assert difference is not None
    assert (difference.index, difference.what) == (8, "'three' alone, 'four' here")


def test_the_same_text_of_other_tokens_differs() -> None:
    assert compare("q", answer("one", "x"), answer("one", "y")) is not None


def test_a_cancelled_reply_is_compared_as_far_as_it_came() -> None:
    assert compare("q", answer("one two"), answer("one", "", cancel_after=1)) is None
    assert compare("q", answer("one two"), answer("two", "", cancel_after=1)) is not None
    assert compare("q", answer("one two"), answer("one", "")) is not None


def test_a_reply_that_failed_is_a_difference() -> None:
    failed = Answer(Question(RANDOM, "greedy", 8), failure="503")
    difference = compare("q", answer("one"), failed)
    assert difference is not None
    assert difference.what == "ended by an error: 503"


def test_an_address_where_nobody_listens_is_one_sentence() -> None:
    server = Server("http://127.0.0.1:9", api_key=None, clock=ScriptedClock())
    with pytest.raises(RequestError, match=r"no status from http://127\.0\.0\.1:9"):
        server.status()


def test_a_server_that_answers_by_its_load_is_seen(text: ChatText) -> None:
    failures = iter([RuntimeError("too many")])

    def fail_once_in_company(call: Call) -> None:
        if len(call.slots) > 1 and (error := next(failures, None)) is not None:
            raise error

    with serving(text, session_rows=(512,) * 8, on_call=fail_once_in_company) as served:
        outcomes = run(served)
    # which crowd meets it first is the machine's affair
    (different,) = [outcome for outcome in outcomes.values() if outcome.is_failure]
    assert different.verdict is Verdict.DIFFERENT
    assert "too many" in different.differences[0].what
