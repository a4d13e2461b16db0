"""Rounds without drafts while drafts pay: soon at first, then rarely."""

from hermitcrab.drafting.probes import Probes


def due(probes: Probes, rounds: int, *, streams: int = 1) -> list[int]:
    """Rounds, counted from 1, in which a probe was due."""
    return [number for number in range(1, rounds + 1) if probes.is_due(streams)]


def test_probes_come_at_doubling_distances() -> None:
    assert due(Probes(), 130) == [8, 24, 56, 120]


def test_in_the_long_run_one_round_in_256_is_a_probe() -> None:
    probes = Probes()
    due(probes, 10_000)
    assert len(due(probes, 25_600)) == 100


def test_a_round_that_had_no_drafts_anyway_puts_the_probe_off() -> None:
    probes = Probes()
    assert due(probes, 7) == []
    probes.note_plain(1)
    assert due(probes, 9) == [8]


def test_each_number_of_streams_has_probes_of_its_own() -> None:
    probes = Probes()
    due(probes, 10_000, streams=8)
    assert due(probes, 9, streams=1) == [8]
