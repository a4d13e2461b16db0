"""What parity asks, and the sessions it asks in, from the model's own text and for a run's scale."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hermitcrab.receipts.record import Case
from hermitcrab.receipts.relays import Cut, every_cut
from hermitcrab.sampling.params import Sampling
from hermitcrab.server.text.chat import ChatText

GREEDY = Sampling()
# one by each way a token can be drawn: from a short ranked list, and from the whole vocabulary
SHORT_LIST = Sampling(temperature=0.9, top_k=20, top_p=0.95, seed=11)
WHOLE_LIST = Sampling(temperature=1.0, min_p=0.02, seed=12)

# each has a word that no other has, so that a neighbour's text in a reply would show
QUESTIONS = (
    "Count from 1 to 400",
    "What is the capital of France?",
    "Tell me a short story about a crab.",
    "Count from 7 to 777 by 7",
    "Hello! How are you?",
    "Count from 900 to 20 by 4",
    "Name a colour of the rainbow.",
    "Repeat: the quick brown fox jumps",
    "Write a haiku about winter.",
    "How many legs does a spider have?",
    "Translate 'good morning' to Spanish.",
    "List three kinds of trees.",
    "Why is the sky blue?",
    "Spell the word lighthouse.",
    "What comes after Tuesday?",
    "Count from 300 to 650",
)

# a prompt of some chunks of keys: shorter sums over keys were seen to be equal in any company
_MIDDLE_TOKENS = 203

# where two prompts end beside the sparse-attention boundary: one reply crosses it, one is behind it
_BEFORE_TOKENS = 6
_BEHIND_TOKENS = 37

# who in a crowd has a long prompt; every crowd has one whose sum over keys is shorter than its neighbour's
_LONG_PLACES = (1, 2, 5)

# whose replies outgrow sessions
_GROWN_PLACES = (0, 3)


@dataclass(frozen=True, slots=True)
class Scale:
    """How much a run does.

    `streams` are the crowds; `grown_tokens` is the length of replies that outgrow sessions `step_tokens`
    apart; `arrivals` bounds the requests of the random traffic, where no time is given. Windows are cut at
    every length where `has_every_cut`, and else at three.
    """

    streams: tuple[int, ...]
    reply_tokens: int
    grown_tokens: int
    step_tokens: int
    arrivals: int
    has_every_cut: bool


QUICK = Scale(
    streams=(3, 8, 16), reply_tokens=24, grown_tokens=72, step_tokens=16, arrivals=24, has_every_cut=False
)
FULL = Scale(
    streams=(3, 8, 16), reply_tokens=200, grown_tokens=1500, step_tokens=256, arrivals=200, has_every_cut=True
)


@dataclass(frozen=True, slots=True)
class Sessions:
    """The sessions of a run in tokens, slot 0 first: `large` ones, a `ladder` of sizes, `middle` ones."""

    large: tuple[int, ...]
    ladder: tuple[int, ...]
    middle: tuple[int, ...]

    @property
    def tokens(self) -> tuple[int, ...]:
        return (*self.large, *self.ladder, *self.middle)

    @property
    def large_slots(self) -> tuple[int, ...]:
        return tuple(range(len(self.large)))

    @property
    def ladder_slots(self) -> tuple[int, ...]:
        """From the smallest session up; the first two are of one size."""
        return tuple(range(len(self.large), len(self.large) + len(self.ladder)))

    @property
    def middle_slots(self) -> tuple[int, ...]:
        start = len(self.large) + len(self.ladder)
        return tuple(range(start, start + len(self.middle)))


@dataclass(frozen=True, slots=True)
class Cases:
    """The prompts of a run: `short` ones, `long` ones up to the sparse-attention boundary and behind it."""

    short: tuple[tuple[int, ...], ...]
    long: tuple[tuple[int, ...], ...]
    scale: Scale

    def crowd(self, streams: int, samplings: Sequence[Sampling]) -> list[Case]:
        """So many requests at once, three of the first six with long prompts; samplings take turns."""
        prompts = [*self.short]
        for place, prompt in zip(_LONG_PLACES, self.long, strict=False):
            prompts[place] = prompt
        return [
            Case(f"request {place}", prompt, samplings[place % len(samplings)], self.scale.reply_tokens)
            for place, prompt in enumerate(prompts[:streams])
        ]

    def grown(self, place: int, sampling: Sampling, max_new_tokens: int | None = None) -> Case:
        """A reply that outgrows sessions; `place` 0 or 1 chooses the prompt. Both end at the same length."""
        prompt = self.short[_GROWN_PLACES[place]]
        tokens = self.scale.grown_tokens + self._longest_grown - len(prompt)
        return Case(f"long reply {place}", prompt, sampling, max_new_tokens or tokens)

    @property
    def _longest_grown(self) -> int:
        return max(len(self.short[place]) for place in _GROWN_PLACES)

    def deals(self, widths: Iterable[int]) -> tuple[tuple[Cut, ...], ...]:
        """The cuts that three streams go through: each all of them, or each a third of a choice of them."""
        cuts = every_cut(widths)
        if self.scale.has_every_cut:
            return (cuts,) * 3
        chosen = [cut for cut in cuts if cut.kept in (1, cut.rows // 2, cut.rows)]
        return tuple(tuple(chosen[place::3]) for place in range(3))

    def sessions(self, *, window_rows: int) -> Sessions:
        """Sessions that hold what the checks need, and no more."""
        scale = self.scale
        longest = max(len(prompt) for prompt in (*self.short, *self.long))
        cut_tokens = max(deal_tokens(deal, window_rows) for deal in self.deals(range(1, window_rows + 1)))
        most_new = max(scale.grown_tokens, scale.reply_tokens, cut_tokens)
        start = self._longest_grown + 8
        steps = -(-(scale.grown_tokens + window_rows) // scale.step_tokens)
        ladder = (start, *(start + scale.step_tokens * step for step in range(steps + 1)))
        middle = max(len(prompt) for prompt in self.short) + scale.reply_tokens + window_rows
        return Sessions((longest + most_new,) * len(_LONG_PLACES), ladder, (middle,) * max(scale.streams))


def deal_tokens(deal: Sequence[Cut], window_rows: int) -> int:
    """Reply tokens in which a stream goes through its cuts: the first, those kept, room for a last window."""
    return 1 + sum(cut.kept for cut in deal) + window_rows


def make_cases(text: ChatText, *, boundary_tokens: int, most_tokens: int, scale: Scale) -> Cases:
    """Cases for a model whose attention turns sparse at `boundary_tokens` and that reads up to `most_tokens`.

    Prompts that it has no room for are left out.
    """
    short = tuple(_prompt(text, question) for question in QUESTIONS)
    lengths = (_MIDDLE_TOKENS, boundary_tokens - _BEFORE_TOKENS, boundary_tokens + _BEHIND_TOKENS)
    room = most_tokens - scale.grown_tokens
    long = tuple(_long_prompt(text, length) for length in lengths if 0 < length < room)
    return Cases(short, long, scale)


def _prompt(text: ChatText, question: str) -> tuple[int, ...]:
    if text.template is None:
        return text.raw_prompt(question).ids
    return text.chat_prompt([{"role": "user", "content": question}], [], {"enable_thinking": False}).ids


def _long_prompt(text: ChatText, tokens: int) -> tuple[int, ...]:
    """Exactly so many tokens of text that does not repeat itself."""
    words, ids = 0, text.raw_prompt("").ids
    while len(ids) < tokens:
        words += tokens
        numbers = " ".join(
            f"{place * place} crabs and {place} shells." for place in range(tokens, tokens + words)
        )
        ids = text.raw_prompt(numbers).ids
    return ids[:tokens]
