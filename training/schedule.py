"""What each step of a run does, as a function of its number alone."""

from dataclasses import dataclass

WARM_UP_STEPS, RESUMED_WARM_UP_STEPS = 100, 40
LAST_RATE = 0.02  # of the peak


@dataclass(frozen=True, slots=True)
class Step:
    """One step's learning rate, sequence length, attention and extra losses."""

    rate: float
    is_long: bool
    budget_blocks: int | None
    chains: bool
    rounds: bool


@dataclass(frozen=True, slots=True)
class Schedule:
    """A run of `steps`, `peak` learning rate falling linearly over its second half.

    A run that `resumes` begins as the earlier one ended: sparse attention, chained drafts, long counts,
    weights rounded to 6 bits.
    """

    steps: int
    peak: float
    resumes: bool = False

    def at(self, step: int, spent: float = 0.0) -> Step:
        """What step `step` of this run does when `spent` (0 to 1) of its seconds have passed.

        The run is as far as its steps or its seconds, whichever are further: both end it at a low rate.
        """
        done = min(1.0, max(step / self.steps, spent))
        phase = 0.6 + 0.4 * done if self.resumes else done
        long_every = 8 if phase < 0.4 else 5 if self.resumes else 4 if phase < 0.9 else 3
        warm_up_steps = RESUMED_WARM_UP_STEPS if self.resumes else WARM_UP_STEPS
        return Step(
            rate=self.peak * min(1.0, (step + 1) / warm_up_steps) * self._fall(done),
            is_long=step % long_every == long_every - 1,
            budget_blocks=self._budget(step // long_every if phase >= 0.7 else step, phase),
            chains=phase >= 0.4,
            rounds=self.resumes or phase >= 0.72,
        )

    @staticmethod
    def _fall(done: float) -> float:
        return 1.0 if done < 0.5 else max(LAST_RATE, 1.0 - (done - 0.5) / 0.5 * (1 - LAST_RATE))

    @staticmethod
    def _budget(turn: int, phase: float) -> int | None:
        if phase < 0.33:
            return None
        early, late = (None, 128, 32, None, 128, 64), (128, 128, 128, 64, 128, None)
        return (early if phase < 0.6 else late)[turn % 6]
