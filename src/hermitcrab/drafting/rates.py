"""How often drafts land, by their place in the window: what the next window may expect of them."""

from collections.abc import Iterator

# a rate moves this far towards the newest outcome once it has settled
_WEIGHT = 1 / 16

# a rate that nothing has been seen of lately moves this far towards the one before it
_DRIFT = 1 / 32


class LandingRates:
    """For each place of a draft, how often it lands when all before it have; at most `most_drafts` places.

    The prior counts for one outcome. A place without an outcome is thought as good as the one before it, so
    deeper windows get their try where shallow ones land.
    """

    def __init__(self, most_drafts: int, *, prior: float) -> None:
        self._prior = prior
        self._rates = [prior] * most_drafts
        self._outcomes = [0] * most_drafts
        # worked out once for many rounds without drafts
        self._gains: tuple[float, ...] | None = None

    def gains(self, drafts: int) -> tuple[float, ...]:
        """Tokens that each of the first `drafts` drafts adds: the chance that it and all before it land."""
        if self._gains is None:
            self._gains = tuple(self._work_out())
        return self._gains[:drafts]

    def observe(self, *, drafted: int, landed: int) -> None:
        """A window had `drafted` drafts, of which the first `landed` landed."""
        self._gains = None
        for place in range(min(landed + 1, drafted)):
            self._outcomes[place] += 1
            weight = max(_WEIGHT, 1 / (1 + self._outcomes[place]))
            self._rates[place] += weight * ((place < landed) - self._rates[place])
        untried = drafted
        if 0 < landed == drafted and untried < len(self._rates) and self._outcomes[untried]:
            before = self._rates[untried - 1]
            self._rates[untried] += _DRIFT * max(0.0, before - self._rates[untried])

    def relax(self) -> None:
        """Drafts could be had and were not wanted: the first rate goes a little way back to the prior."""
        if self._rates and self._rates[0] < self._prior:
            self._gains = None
            self._rates[0] += _DRIFT * (self._prior - self._rates[0])

    def _work_out(self) -> Iterator[float]:
        rate, chance = self._prior, 1.0
        for known, outcomes in zip(self._rates, self._outcomes, strict=True):
            rate = known if outcomes else rate
            chance *= rate
            yield chance
