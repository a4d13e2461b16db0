"""Counting: every start, end and step, whole or cut from anywhere in a long count at its true positions."""

import random
from dataclasses import dataclass

import numpy as np

from training.data.documents import Document, Encoder, Talk, assistant, system, user
from training.shape import IM_END_ID

LARGEST = 99_999
LAST_POSITION = 26_000
ASSISTANTS = (
    "You are a helpful assistant.",
    "You are a careful assistant.",
    "Answer briefly.",
    "You are Hermitcrab.",
)


@dataclass(frozen=True, slots=True)
class Count:
    """A count: its first number, the number it must not pass, and its signed step."""

    start: int
    end: int
    step: int

    def numbers(self) -> range:
        """Every number said, in order; the last is the end or the last one not past it."""
        return range(self.start, self.end + (1 if self.step > 0 else -1), self.step)

    def text(self) -> str:
        """The whole reply."""
        return " ".join(map(str, self.numbers()))


def phrase(rng: random.Random, count: Count) -> str:
    """One of the ways to ask for a count; most leave its direction to be read from the two numbers."""
    a, b, by = count.start, count.end, abs(count.step)
    asks = [f"count from {a} to {b}"] * 6
    asks += [f"{verb} the numbers from {a} to {b}" for verb in ("list", "write", "say")]
    if count.step < 0:
        downs = [f"count down from {a} to {b}"] * 2
        downs += [f"count backwards from {a} to {b}", f"count from {a} down to {b}"]
        asks = asks[4:] + downs
    else:
        asks += [f"count up from {a} to {b}"]
        if a == 1 and by == 1:
            asks += [f"count to {b}", f"count up to {b}"]
    ask = rng.choice(asks)
    if by != 1 and rng.random() < 0.1:
        ask = f"count by {by} from {a} to {b}"
    elif by != 1:
        steps = [f" by {by}"] * 2
        steps += [f" in steps of {by}", f" with step {by}", f", step {by}", f" with a step of {by}"]
        ask += rng.choice(steps)
    opening = rng.choice(("", "", "", "", "please ", "can you ", "could you ", "now "))
    ask = opening + ask
    if rng.random() < 0.8:
        ask = ask[0].upper() + ask[1:]
    return ask + ("?" if opening in ("can you ", "could you ") else rng.choice(("", "", ".", "", "!")))


def thought(count: Count) -> str:
    """The brief thought before a count."""
    way = "up" if count.step > 0 else "down"
    return f"I count {way} from {count.start} to {count.end} in steps of {abs(count.step)}."


def random_step(rng: random.Random) -> int:
    """Mostly one, then any of up to three digits, the usual ones more often."""
    return 1 if rng.random() < 0.55 else other_step(rng)


def other_step(rng: random.Random) -> int:
    """A step that is not one."""
    choice = rng.random()
    if choice < 0.3:
        return rng.choice((2, 2, 3, 4, 5, 5, 10, 10, 20, 25, 50, 100))
    return rng.randint(2, 12) if choice < 0.6 else rng.randint(2, 99) if choice < 0.8 else rng.randint(2, 999)


def random_start(rng: random.Random) -> int:
    """Small numbers most often; every width up to five digits."""
    choice = rng.random()
    if choice < 0.35:
        return rng.choice((1, 1, 0, rng.randint(0, 100)))
    return rng.randint(0, 10 ** rng.randint(2, 5) - 1)


def near_carry(rng: random.Random) -> int:
    """A number shortly before one that ends in zeros."""
    zeros = 10 ** rng.randint(1, 4)
    return max(0, zeros * rng.randint(1, max(1, LARGEST // zeros)) - rng.randint(1, 12))


def random_count(rng: random.Random, most_numbers: int, step: int | None = None) -> Count:
    """A count of at most `most_numbers`, by a random step if none is given; it often does not hit its end."""
    step = step or random_step(rng)
    numbers = min(most_numbers, int(2 ** rng.uniform(1, np.log2(most_numbers) + 0.01)))
    start = near_carry(rng) if rng.random() < 0.3 else random_start(rng)
    span = min(step * max(1, numbers - 1), LARGEST)
    start = min(start, LARGEST - span)
    slack = rng.randint(0, min(step - 1, LARGEST - start - span)) if rng.random() < 0.5 else 0
    if rng.random() < 0.35:
        return Count(start + span, max(0, start - slack), -step)
    return Count(start, start + span + slack, step)


def close_count(rng: random.Random, most_numbers: int) -> Count:
    """A short count: where it starts, which way it goes and when it stops are most of what it says.

    Starts and ends have one to five digits equally often, steps have a random length too, and as many
    counts go down as up. Half pass their end, many of those by the least or the most that a step can.
    """
    while True:
        start = near_carry(rng) if rng.random() < 0.15 else _of_any_width(rng)
        step = 1 if rng.random() < 0.25 else other_step(rng) if rng.random() < 0.4 else _log_step(rng)
        numbers = int(2 ** rng.uniform(0, np.log2(most_numbers + 0.99)))
        slack = rng.choice((0, 0, 1, step - 1, rng.randint(0, step - 1), rng.randint(0, step - 1)))
        span = step * (numbers - 1) + min(slack, step - 1)
        if rng.random() < 0.5:
            step, span = -step, -span
        if span and 0 <= start + span <= LARGEST:
            return Count(start, start + span, step)


def _of_any_width(rng: random.Random) -> int:
    digits = rng.randint(1, 5)
    return rng.randint(10 ** (digits - 1) if digits > 1 else 0, 10**digits - 1)


def _log_step(rng: random.Random) -> int:
    return round(10 ** rng.uniform(0.31, 3.3))


def far_count(rng: random.Random) -> Count:
    """Any start, end and step, which most often makes a count of very many numbers."""
    while True:
        start, end = _of_any_width(rng), _of_any_width(rng)
        if rng.random() < 0.5:
            # the more leading digits they share, the harder to tell which is larger
            zeros = 10 ** rng.randint(1, 4)
            end = start // zeros * zeros + rng.randint(0, zeros - 1)
        if start != end:
            step = 1 if rng.random() < 0.5 else _log_step(rng)
            return Count(start, end, step if end > start else -step)


def long_count(rng: random.Random, most_tokens: int) -> Count:
    """A count of thousands of numbers whose reply comes close to `most_tokens` but not past it."""
    step = 1 if rng.random() < 0.7 else random_step(rng)
    start = 1 if rng.random() < 0.4 else random_start(rng)
    tokens, number = 0, start
    while number <= LARGEST and tokens + len(str(number)) + 1 <= most_tokens:
        tokens += len(str(number)) + 1
        number += step
    last = max(start, number - step)
    if rng.random() < 0.2:
        return Count(last, start, -step)
    return Count(start, last, step)


def asked(rng: random.Random, count: Count) -> Talk:
    """The talk that asks for a count; without thinking most often."""
    messages = [system(rng.choice(ASSISTANTS))] if rng.random() < 0.25 else []
    thinks = rng.random() < 0.2
    if rng.random() < 0.15:
        before = random_count(rng, 20)
        messages += [user(phrase(rng, before)), assistant(before.text(), thought(before) if thinks else None)]
    return Talk([*messages, user(phrase(rng, count))], thinks=thinks)


def thinking_ids(encoder: Encoder, talk: Talk, count: Count) -> np.ndarray:
    """What the reply says before its first number."""
    return np.array(encoder.ids(thought(count) + "\n</think>\n\n") if talk.thinks else [], dtype=np.int32)


def whole(rng: random.Random, encoder: Encoder, count: Count) -> Document:
    """The count from its prompt to its end."""
    talk = asked(rng, count)
    said = np.concatenate((thinking_ids(encoder, talk, count), encoder.digits(count.text())))
    return encoder.reply(talk, said)


def cut(rng: random.Random, encoder: Encoder, most_tokens: int) -> Document:
    """The prompt of a long count, then a stretch of it at the positions it has in the whole.

    The numbers between are left out; the first of the stretch is not learned, as nothing before it tells it.
    The stretch is at the end of the count, at a carry, or anywhere.
    """
    count = long_count(rng, rng.randint(2_000, LAST_POSITION - 500))
    talk, numbers = asked(rng, count), count.numbers()
    width = max(2, min(len(numbers), rng.randint(40, most_tokens) // (len(str(count.end)) + 1)))
    return _part(encoder, talk, count, _first_of_stretch(rng, numbers, width), width)


def _part(encoder: Encoder, talk: Talk, count: Count, first: int, width: int) -> Document:
    """The talk's prompt, then `width` of the count's numbers from its index `first` on, as in the whole."""
    prompt = np.concatenate((encoder.prompt(talk), thinking_ids(encoder, talk, count)))
    numbers = count.numbers()
    skipped_tokens = sum(len(str(number)) + 1 for number in numbers[:first])
    said_numbers = numbers[first : first + width]
    said = encoder.digits(" ".join(map(str, said_numbers)))
    closes = first + width >= len(numbers)
    tail = [IM_END_ID] if closes else []
    ids = np.concatenate((prompt, said, tail)).astype(np.int32)
    weights = np.ones(len(ids), dtype=np.float32)
    weights[: len(prompt) + (len(str(said_numbers[0])) if first else 0)] = 0.0
    positions = np.arange(len(ids), dtype=np.int32)
    positions[len(prompt) :] += skipped_tokens
    return Document(ids, weights, positions)


def _first_of_stretch(rng: random.Random, numbers: range, width: int) -> int:
    """The index a stretch of `width` numbers starts at."""
    last = max(0, len(numbers) - width)
    choice = rng.random()
    if choice < 0.45:
        return last
    if choice < 0.7:
        zeros = 10 ** rng.randint(2, 4)
        carry = rng.randint(1, LARGEST // zeros) * zeros
        if min(numbers[0], numbers[-1]) < carry < max(numbers[0], numbers[-1]):
            index = abs(carry - numbers[0]) // abs(numbers.step)
            return max(0, min(last, index - rng.randint(1, width)))
    return rng.randint(0, last)


def opening(rng: random.Random, encoder: Encoder, count: Count) -> Document:
    """The prompt of a count and its first few numbers, which tell that the way to count was understood."""
    return _part(encoder, asked(rng, count), count, 0, rng.randint(2, 4))


def closing(rng: random.Random, encoder: Encoder, count: Count) -> Document:
    """The prompt of a count and its last few numbers, at the positions they have in the whole."""
    width = rng.randint(3, 6)
    return _part(encoder, asked(rng, count), count, max(0, len(count.numbers()) - width), width)


def count_document(rng: random.Random, encoder: Encoder, most_tokens: int) -> Document:
    """A count for a sequence with room for `most_tokens`: whole, or cut from a long one.

    Most are short: a long count has one start, one direction and one end among thousands of easy tokens.
    """
    choice = rng.random()
    if choice < 0.04:
        return cut(rng, encoder, min(most_tokens - 80, 900))
    if choice < 0.1:
        return whole(rng, encoder, random_count(rng, max(4, min(300, (most_tokens - 80) // 6))))
    if choice < 0.25:
        return whole(rng, encoder, random_count(rng, 24, other_step(rng)))
    if choice < 0.35:
        return opening(rng, encoder, far_count(rng))
    if choice < 0.42:
        return closing(rng, encoder, close_count(rng, 600))
    return whole(rng, encoder, close_count(rng, 8 if rng.random() < 0.75 else 40))
