"""All checks in this process, in order, on an engine made of the parts that a server is made of."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from hermitcrab.assemble import FoundModel, Progress, open_backend, read_text, read_weights
from hermitcrab.clock import Clock
from hermitcrab.core.load_check import CheckState, LoadCheck
from hermitcrab.engine.backend import TorchBackend
from hermitcrab.engine.marks import MarkTap
from hermitcrab.kernels.measures import Measures
from hermitcrab.receipts.cases import Cases, Scale, Sessions, make_cases
from hermitcrab.receipts.growth import growth
from hermitcrab.receipts.prompts import prompt_cuts, resumed_prompts
from hermitcrab.receipts.record import Outcome, Verdict, not_available
from hermitcrab.receipts.sharing import concurrency, drafting, windows
from hermitcrab.receipts.stand import Stand, Watched
from hermitcrab.receipts.traffic import Weather, after_traffic, traffic


@dataclass(frozen=True, slots=True)
class Bench:
    """A stand with its cases and sessions, and how many threads it computes with."""

    stand: Stand
    cases: Cases
    sessions: Sessions
    threads: int

    @property
    def load_check(self) -> LoadCheck:
        """What the check at load found when the stand was opened."""
        return self.stand.backend.facts().load_check


Topic = Callable[[Bench, Weather], Iterator[Outcome]]

# every topic by its name, in order; the last one gives up the engine that the others ran on
TOPICS: dict[str, Topic] = {
    "load": lambda bench, weather: load_check(bench.load_check),
    "concurrency": lambda bench, weather: concurrency(bench.stand, bench.cases, bench.sessions),
    "drafting": lambda bench, weather: drafting(bench.stand, bench.cases),
    "windows": lambda bench, weather: windows(bench.stand, bench.cases, bench.sessions),
    "growth": lambda bench, weather: growth(bench.stand, bench.cases, bench.sessions),
    "prompts": lambda bench, weather: prompt_cuts(bench.stand, bench.cases, bench.sessions),
    "cache": lambda bench, weather: resumed_prompts(bench.stand, bench.cases),
    "traffic": lambda bench, weather: traffic(bench.stand, bench.cases, bench.sessions, weather),
    "fresh": lambda bench, weather: after_traffic(bench.stand, bench.cases),
}


def open_bench(
    model: FoundModel, scale: Scale, clock: Clock, progress: Progress, *, measures: Measures | None = None
) -> Bench:
    """Load a model and open the sessions that the checks need.

    `measures` None means all of them; others are for showing that the checks see what is missing.
    """
    text = read_text(model)
    cases = make_cases(
        text,
        boundary_tokens=model.boundary_tokens,
        most_tokens=model.context_tokens,
        scale=scale,
    )
    sessions = cases.sessions(window_rows=model.window_rows)
    checkpoint = read_weights(model, progress)
    first = open_backend(model, checkpoint, sessions.tokens, progress, measures=measures)
    # an engine opened later is one more of the same
    unchecked = replace(model, settings=replace(model.settings, load_check=False))

    def open_another() -> Watched:
        another = open_backend(unchecked, checkpoint, sessions.tokens, progress, measures=measures)
        another.take_check(first.facts().load_check)
        return _watched(another)

    return Bench(Stand(_watched(first), open_another, clock), cases, sessions, first.threads)


def run_topics(bench: Bench, weather: Weather, names: Iterable[str] = tuple(TOPICS)) -> Iterator[Outcome]:
    """The outcomes of these topics, one at a time; then those of the receipts that parity does not make."""
    for name in names:
        yield from TOPICS[name](bench, weather)


def unavailable() -> tuple[Outcome, ...]:
    """Receipts on the list that no run of parity makes."""
    return (
        not_available("aggregate speed at 1 to 16 streams", "a matter of speed, not of parity", receipt="2"),
        not_available("lone-driver hand-overs", "this command does not bring one about", receipt="5"),
        not_available("first token after idling", "a matter of speed, not of parity", receipt="7"),
    )


def load_check(check: LoadCheck) -> Iterator[Outcome]:
    """What the check at load found; a run cannot pass where it switched something off."""
    name = "check at load"
    match check.state:
        case CheckState.NOT_RUN:
            yield not_available(name, "switched off")
        case CheckState.PASSED:
            yield Outcome(name, Verdict.EQUAL, note="; ".join(check.unchecked), seconds=check.seconds)
        case CheckState.REDUCED:
            note = "; ".join(f"switched off: {reason}" for reason in check.reasons)
            yield Outcome(name, Verdict.DIFFERENT, note=note, seconds=check.seconds)


def _watched(backend: TorchBackend) -> Watched:
    tap = MarkTap()
    backend.watch_logits(tap)
    return Watched(backend, tap.take)
