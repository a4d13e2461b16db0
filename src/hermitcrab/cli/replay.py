"""`hermitcrab replay TRAIL`: run the lanes again from a trail, and say whether they decide the same."""

from pathlib import Path

import click

from hermitcrab.core.replay import Difference, Replayed, replay
from hermitcrab.errors import TrailError

DIFFERENCE_STATUS = 1


@click.command("replay")
@click.argument("trail", metavar="TRAIL", type=click.Path(path_type=Path))
def command(trail: Path) -> int:
    """Run the lanes again from TRAIL, and compare each decision.

    TRAIL is what `hermitcrab serve --trail FILE` has written. No model is needed: the requests and cancels
    of the file come in again, its tokens stand for the model's, its moments for the clock. Prints how many
    decisions were the same, or the first one that differs, and then ends with status 1.
    """
    try:
        with trail.open(encoding="ascii", errors="replace") as lines:
            replayed = replay(lines)
    except OSError as error:
        raise TrailError(f"{trail}: cannot be read: {error.strerror}") from error
    for line in replay_lines(replayed):
        click.echo(line)
    return 0 if replayed.difference is None else DIFFERENCE_STATUS


def replay_lines(replayed: Replayed) -> list[str]:
    """What a person reads of a replay."""
    lines = [f"line {number} breaks off and was left out" for number in replayed.torn_lines]
    if replayed.runs > 1:
        lines.append(f"{replayed.runs} runs of a server")
    if replayed.difference is None:
        return [*lines, f"{replayed.decisions} decisions, all the same"]
    return [*lines, *_difference_lines(replayed.decisions, replayed.difference)]


def _difference_lines(decisions: int, difference: Difference) -> list[str]:
    return [
        f"line {difference.line}, {difference.act}: the first difference, after {decisions} decisions",
        f"  in the trail: {difference.recorded}",
        f"  in the replay: {difference.replayed}",
    ]
