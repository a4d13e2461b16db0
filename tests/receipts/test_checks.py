"""Every check passes on a sound backend, brings about what it claims, and sees the fault it is for."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pytest
from receipts_bench import WINDOW_ROWS, Bench, ChangedDraws, ChangedRest, LostTail, Remembering, bench

from hermitcrab.core.backend import Backend
from hermitcrab.core.load_check import NOT_RUN, CheckState, LoadCheck
from hermitcrab.receipts.growth import growth
from hermitcrab.receipts.parity import load_check, unavailable
from hermitcrab.receipts.prompts import prompt_cuts, resumed_prompts
from hermitcrab.receipts.record import Outcome, Verdict
from hermitcrab.receipts.sharing import concurrency, drafting, windows
from hermitcrab.receipts.traffic import Weather, after_traffic, traffic

WEATHER = Weather(seed=3, minutes=None)

Check = Callable[[Bench], Iterator[Outcome]]

CHECKS: dict[str, Check] = {
    "concurrency": lambda made: concurrency(made.stand, made.cases, made.sessions),
    "drafting": lambda made: drafting(made.stand, made.cases),
    "windows": lambda made: windows(made.stand, made.cases, made.sessions),
    "growth": lambda made: growth(made.stand, made.cases, made.sessions),
    "prompts": lambda made: prompt_cuts(made.stand, made.cases, made.sessions),
    "cache": lambda made: resumed_prompts(made.stand, made.cases),
    "traffic": lambda made: traffic(made.stand, made.cases, made.sessions, WEATHER),
    "fresh": lambda made: after_traffic(made.stand, made.cases),
}


def changed(is_changed: Callable[[Sequence[int], int], bool]) -> Callable[[Backend], Backend]:
    return lambda backend: ChangedDraws(backend, is_changed)


def verdicts(check: str, made: Bench) -> set[Verdict]:
    return {outcome.verdict for outcome in CHECKS[check](made)}


@pytest.mark.parametrize("check", CHECKS)
def test_a_backend_without_faults_is_equal_everywhere_and_is_used_by_its_rules(check: str) -> None:
    made = bench()
    assert verdicts(check, made) == {Verdict.EQUAL}
    assert made.violations == []


@pytest.mark.parametrize("check", ["concurrency", "prompts", "traffic", "growth"])
def test_a_round_that_its_company_changes_is_seen(check: str) -> None:
    assert Verdict.DIFFERENT in verdicts(check, bench(changed(lambda rows, position: len(rows) > 1)))


@pytest.mark.parametrize("check", ["drafting", "windows", "concurrency"])
def test_a_window_that_its_width_changes_is_seen(check: str) -> None:
    assert Verdict.DIFFERENT in verdicts(
        check, bench(changed(lambda rows, position: max(rows) == WINDOW_ROWS))
    )


@pytest.mark.parametrize("width", [2, 3, 4])
def test_the_windows_check_sees_a_fault_in_any_one_width(width: int) -> None:
    assert Verdict.DIFFERENT in verdicts("windows", bench(changed(lambda rows, position: rows == [width])))


def test_a_move_that_loses_something_is_seen() -> None:
    outcomes = list(CHECKS["growth"](bench(LostTail)))
    assert [outcome.verdict for outcome in outcomes[:3]] == [Verdict.DIFFERENT] * 3


def test_a_restored_state_that_is_not_the_kept_one_is_seen() -> None:
    assert verdicts("cache", bench(ChangedRest)) == {Verdict.DIFFERENT}


def test_a_cache_from_which_nothing_resumes_is_not_a_passed_check() -> None:
    (outcome,) = CHECKS["cache"](bench(prompt_grid_rows=256))
    assert outcome.verdict is Verdict.NOT_SHOWN


def test_a_backend_that_remembers_whom_it_served_is_seen() -> None:
    made = bench(partial(Remembering, rounds=200))
    list(CHECKS["concurrency"](made))
    assert verdicts("fresh", made) == {Verdict.DIFFERENT}


def test_the_growth_check_moves_waits_and_stands_at_the_edge() -> None:
    moved, outgrown, paused, edge = CHECKS["growth"](bench())
    assert (moved.receipt, outgrown.receipt, edge.receipt) == ("3", "4", "6")
    assert outgrown.note == "2 moves, 1 pause"
    assert paused.name == "a pause every 16 tokens"
    assert edge.note.endswith("no move, no pause")


def test_the_windows_check_runs_every_width_and_every_cut() -> None:
    for outcome in CHECKS["windows"](bench()):
        assert outcome.note == "9 cuts of windows of up to 4 rows"


def test_without_a_draft_head_windows_and_drafts_are_not_available() -> None:
    made = bench(draft_depth=0, window_rows=1)
    assert verdicts("windows", made) == verdicts("drafting", made) == {Verdict.NOT_AVAILABLE}


def test_widths_that_the_load_check_switched_off_are_not_run() -> None:
    made = bench(load_check=LoadCheck(CheckState.REDUCED, off_widths=(3,)))
    for outcome in CHECKS["windows"](made):
        assert (outcome.verdict, outcome.note) == (Verdict.EQUAL, "6 cuts of windows of up to 4 rows")
    assert made.violations == []


def test_random_traffic_follows_from_its_seed() -> None:
    def replies(seed: int) -> list[tuple[str, int, bool]]:
        made = bench()
        (outcome,) = traffic(made.stand, made.cases, made.sessions, Weather(seed, None))
        return [(shown.case, shown.tokens, shown.is_cancelled) for shown in outcome.replies]

    assert replies(5) == replies(5)
    assert replies(5) != replies(6)


def test_random_traffic_cancels_moves_and_pauses() -> None:
    (outcome,) = CHECKS["traffic"](bench())
    assert any(shown.is_cancelled for shown in outcome.replies)
    assert ", 0 moves" not in outcome.note


def test_the_load_check_passes_fails_or_says_that_it_was_not_run() -> None:
    def verdict(check: LoadCheck) -> Verdict:
        (outcome,) = load_check(check)
        return outcome.verdict

    assert verdict(LoadCheck(CheckState.PASSED)) is Verdict.EQUAL
    assert verdict(LoadCheck(CheckState.REDUCED, reasons=("windows of 2 rows",))) is Verdict.DIFFERENT
    assert verdict(NOT_RUN) is Verdict.NOT_AVAILABLE


def test_receipts_that_parity_does_not_make_are_listed_as_not_available() -> None:
    listed = unavailable()
    assert [outcome.receipt for outcome in listed] == ["2", "5", "7"]
    assert {outcome.verdict for outcome in listed} == {Verdict.NOT_AVAILABLE}
