"""Looks at the other side: soon at first, then rarely, and again after a change."""

from hermitcrab.drafting.probes import Probes


def looks(probes: Probes, rounds: int, *, is_drafting: bool, streams: int = 1) -> list[int]:
    """Rounds, counted from 1, in which a look was due."""
    return [number for number in range(1, rounds + 1) if probes.is_due(streams, is_drafting=is_drafting)]


def test_looks_come_at_doubling_distances() -> None:
    assert looks(Probes(), 130, is_drafting=True) == [2, 6, 14, 30, 62, 126]


def test_in_the_long_run_one_round_in_256_is_a_look() -> None:
    probes = Probes()
    looks(probes, 10_000, is_drafting=False)
    assert len(looks(probes, 25_600, is_drafting=False)) == 100


def test_after_a_change_a_look_comes_within_16_rounds() -> None:
    probes = Probes()
    looks(probes, 10_000, is_drafting=True)
    assert looks(probes, 40, is_drafting=False) == [16]


def test_a_choice_that_changes_every_round_needs_no_looks() -> None:
    probes = Probes()
    assert not any(probes.is_due(1, is_drafting=bool(number % 2)) for number in range(100))


def test_each_number_of_streams_has_looks_of_its_own() -> None:
    probes = Probes()
    looks(probes, 10_000, is_drafting=True, streams=8)
    assert looks(probes, 7, is_drafting=True, streams=1) == [2, 6]
