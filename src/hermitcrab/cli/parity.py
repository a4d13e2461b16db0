"""`hermitcrab parity`: prove that replies are exact, in this process or against a running server."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from hermitcrab.assemble import find_model
from hermitcrab.cli.console import make_console, set_up_logging
from hermitcrab.cli.live import Loading
from hermitcrab.cli.options import settings_command
from hermitcrab.clock import WallClock
from hermitcrab.errors import SettingError
from hermitcrab.receipts.cases import FULL, QUICK
from hermitcrab.receipts.origin import CheckpointHash, hash_checkpoint, this_build, this_machine
from hermitcrab.receipts.parity import open_bench, run_topics, unavailable
from hermitcrab.receipts.record import Outcome
from hermitcrab.receipts.report import Receipt, difference_lines, outcome_table, write_receipt
from hermitcrab.receipts.served import run_served
from hermitcrab.receipts.traffic import Weather
from hermitcrab.settings import ParitySettings

DIFFERENT_STATUS = 1

# the table's width where no terminal has one
_PAGE_COLUMNS = 140


@dataclasses.dataclass(frozen=True, slots=True)
class _Running:
    """Checks about to be made, and what they are made on."""

    outcomes: Iterator[Outcome]
    checkpoint: CheckpointHash | None = None
    threads: int | None = None


def parity(settings: ParitySettings) -> int:
    """Make every check, print the table, write the receipt; the exit status: 1 if a check failed.

    Raises HermitcrabError for settings, a model or a server that cannot be checked.
    """
    if settings.json_path is not None and not Path(settings.json_path).resolve().parent.is_dir():
        raise SettingError(f"--json {settings.json_path}: its directory does not exist")
    clock, console = WallClock(), make_console()
    set_up_logging("warning", console)
    build, machine = this_build(), this_machine()
    made_unix_s, started_s = clock.unix_s(), clock.now_s()
    running = _start_inside(settings, console) if settings.url is None else _start_served(settings)
    outcomes = (*_shown(running.outcomes, console), *unavailable())
    receipt = Receipt(
        made_unix_s,
        round(clock.now_s() - started_s, 3),
        build,
        machine,
        running.checkpoint,
        running.threads,
        {**dataclasses.asdict(settings), "api_key": None},
        outcomes,
    )
    out = Console(highlight=False, width=None if console.is_terminal else _PAGE_COLUMNS)
    out.print(outcome_table(outcomes))
    for line in difference_lines(outcomes):
        out.print(line, markup=False, soft_wrap=True)
    out.print(_verdict(receipt), markup=False)
    if settings.json_path is not None:
        write_receipt(receipt, Path(settings.json_path))
    return 0 if receipt.has_passed else DIFFERENT_STATUS


def _start_inside(settings: ParitySettings, console: Console) -> _Running:
    model = find_model(settings.model)
    scale = QUICK if settings.is_quick else FULL
    with Loading(console) as loading:
        bench = open_bench(model, scale, WallClock(), loading)
    weather = Weather(settings.seed, settings.minutes)
    return _Running(run_topics(bench, weather), hash_checkpoint(model.id, model.directory), bench.threads)


def _start_served(settings: ParitySettings) -> _Running:
    assert settings.url is not None, "only for a server that was named"
    scale = QUICK if settings.is_quick else FULL
    weather = Weather(settings.seed, settings.minutes)
    return _Running(run_served(settings.url, scale, weather, WallClock(), api_key=settings.api_key))


def _shown(outcomes: Iterator[Outcome], console: Console) -> Iterator[Outcome]:
    """Each outcome as it comes, told on the console."""
    for outcome in outcomes:
        console.print(f"{outcome.name}: {outcome.verdict}, {outcome.seconds:.1f} s", markup=False)
        yield outcome


def _verdict(receipt: Receipt) -> str:
    failed = sum(outcome.is_failure for outcome in receipt.outcomes)
    made = sum(bool(outcome.replies) or bool(outcome.seconds) for outcome in receipt.outcomes)
    if receipt.has_passed:
        return f"equal in all {made} checks, {receipt.seconds:.0f} s"
    return f"{failed} of {made} checks failed, {receipt.seconds:.0f} s"


command = settings_command(
    "parity", ParitySettings, parity, "Prove that replies are the same alone, in a crowd, drafted and moved."
)
