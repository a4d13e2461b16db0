"""What the exported weights do: counts, tasks, draft hits and held-out loss, all with weights as read back from 6 bits.

python -m training.evaluate --tokenizer FOLDER --weights FOLDER --out REPORT.json
"""

import argparse
import json
import random
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from training.checkpoint import load_weights
from training.data.counts import Count, long_count, phrase, random_count
from training.data.documents import Document, Encoder, Talk, user
from training.data.mixture import LOOKAHEAD_TOKENS, Mixture
from training.decode import Decoder
from training.export import is_quantized
from training.nets.model import Batch, Model, Pass, Plan, pieces
from training.quantize import rounded
from training.shape import BUILTIN, END_OF_TEXT_ID, IM_END_ID

HELD_OUT_SEED = 987_654_321
LONG_CAPACITY_TOKENS = 20_480
TASK_CAPACITY_TOKENS = 2_048
TASK_KINDS = ("code", "own", "copy", "tool", "chat", "trivia")
LOSS_KINDS = ("count", *TASK_KINDS)


@dataclass(frozen=True, slots=True)
class Reply:
    """One greedy reply against the one right answer."""

    ask: str
    is_exact: bool
    reply_tokens: int
    first_wrong: int | None
    said: str


def load_model(folder: Path, device: torch.device, dtype: torch.dtype) -> Model:
    """The model as a reader of the export sees it."""
    model = Model(BUILTIN).to(torch.bfloat16)
    load_weights(model, folder)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if is_quantized(name, weight):
                weight.copy_(rounded(weight))
    return model.to(device=device, dtype=dtype).requires_grad_(requires_grad=False)


class Examiner:
    """Asks one model, greedily and without drafts."""

    def __init__(self, model: Model, encoder: Encoder) -> None:
        self.model, self.encoder = model, encoder
        self.device = model.lm_head.weight.device

    def ask(self, talks: list[Talk], answers: list[list[int]], capacity_tokens: int) -> list[Reply]:
        """The replies to the talks, each compared with its answer's ids (the end token included)."""
        decoder = Decoder(self.model, [self.encoder.prompt(talk).tolist() for talk in talks], capacity_tokens)
        return [
            self._compare(talk, said, answer)
            for talk, said, answer in zip(talks, decoder.run(), answers, strict=True)
        ]

    def _compare(self, talk: Talk, said: list[int], answer: list[int]) -> Reply:
        wrong = next(
            (i for i, pair in enumerate(zip(said, answer, strict=False)) if pair[0] != pair[1]), None
        )
        if wrong is None and len(said) != len(answer):
            wrong = min(len(said), len(answer))
        shown = self.encoder.tokenizer.decode(
            said[: 40 if wrong is None else wrong + 20][-60:], skip_special_tokens=False
        )
        return Reply(str(talk.messages[-1]["content"])[:100], wrong is None, len(said), wrong, shown)

    def counts(self, counts: list[Count], rng: random.Random | None, capacity_tokens: int) -> list[Reply]:
        """Counts without thinking; asked in many ways with an rng, plainly without."""
        talks = [
            Talk([user(phrase(rng, one) if rng else f"Count from {one.start} to {one.end}")])
            for one in counts
        ]
        answers = [[*self.encoder.digits(one.text()).tolist(), IM_END_ID] for one in counts]
        return self.ask(talks, answers, capacity_tokens)

    def tasks(self, kind: str, count: int) -> list[Reply]:
        """First replies of held-out talks of a kind."""
        mixture = Mixture(self.encoder, HELD_OUT_SEED)
        talks, answers = [], []
        while len(talks) < count:
            talk = mixture.talk(kind)
            first = next(i for i, message in enumerate(talk.messages) if message["role"] == "assistant")
            whole = self.encoder.talk(Talk(talk.messages[: first + 1], talk.tools, talk.thinks, talk.effort))
            learned = np.flatnonzero(whole.weights)
            if len(whole.ids) < TASK_CAPACITY_TOKENS - 64:
                talks.append(Talk(talk.messages[:first], talk.tools, talk.thinks, talk.effort))
                answers.append(whole.ids[learned].tolist())
        return self.ask(talks, answers, TASK_CAPACITY_TOKENS)

    def losses(self, kind: str, sequences: int) -> dict[str, float]:
        """Loss and share of right arg-maxes a learned token of held-out text; depth 0 is the trunk, 1 to 3 the drafts.

        A draft's share is its hit rate given that the drafts before it landed.
        """
        mixture = Mixture(self.encoder, HELD_OUT_SEED + 1)
        found = [packed(mixture, kind, TASK_CAPACITY_TOKENS) for _ in range(sequences)]
        batch = Batch(
            torch.stack([torch.from_numpy(one.ids).long() for one in found]).to(self.device),
            torch.stack([torch.from_numpy(one.weights) for one in found]).to(self.device),
            torch.stack([torch.from_numpy(one.positions[:TASK_CAPACITY_TOKENS]).long() for one in found]).to(
                self.device
            ),
        )
        plan = Plan(budget_blocks=BUILTIN.budget_blocks, chain_sequences=sequences)
        with torch.no_grad():
            losses = Pass(self.model, pieces(compiled=False), batch, plan).losses()
        figures: dict[str, float] = {}
        for depth, triple in enumerate((losses.token, *losses.drafts)):
            total, weight, right = triple.tolist()
            figures |= {f"loss_{depth}": round(total / weight, 5), f"right_{depth}": round(right / weight, 5)}
        return figures


def packed(mixture: Mixture, kind: str, length_tokens: int) -> Document:
    """Documents of one kind, packed to a sequence with its look-ahead."""
    found: list[Document] = []
    while sum(len(one.ids) + 1 for one in found) < length_tokens + LOOKAHEAD_TOKENS:
        found.append(mixture.document(length_tokens, kind))
    end = length_tokens + LOOKAHEAD_TOKENS
    ids = np.concatenate([np.append(one.ids, END_OF_TEXT_ID) for one in found])[:end].astype(np.int32)
    weights = np.concatenate([np.append(one.weights, 0.0) for one in found])[:end].astype(np.float32)
    return Document(ids, weights, np.arange(end, dtype=np.int32))


def long_counts(count: int) -> list[Count]:
    """The count to 4000 and others as long, the same each time."""
    rng = random.Random(HELD_OUT_SEED)
    fixed = [Count(1, 4000, 1), Count(1, 1000, 1), Count(1, 2000, 1), Count(0, 3000, 1), Count(1, 3999, 1)]
    fixed += [Count(500, 4000, 1), Count(1, 3000, 1), Count(9000, 12000, 1)]
    return (fixed + [long_count(rng, rng.randint(4_000, 20_000)) for _ in range(count)])[:count]


def summary(replies: list[Reply], *, failures: int = 8) -> dict[str, object]:
    """How many were exact, and the first that were not."""
    wrong = [asdict(reply) for reply in replies if not reply.is_exact]
    return {"asked": len(replies), "exact": len(replies) - len(wrong), "failures": wrong[:failures]}


def report(examiner: Examiner, *, long: int, short: int, tasks: int, sequences: int) -> dict[str, object]:
    """Every figure of the evaluation."""
    started_s = time.monotonic()
    rng = random.Random(HELD_OUT_SEED)
    found: dict[str, object] = {"losses": {kind: examiner.losses(kind, sequences) for kind in LOSS_KINDS}}
    found["tasks"] = {kind: summary(examiner.tasks(kind, tasks)) for kind in TASK_KINDS}
    ranges = [random_count(rng, 200) for _ in range(short)]
    found["short_counts"] = summary(examiner.counts(ranges, rng, TASK_CAPACITY_TOKENS))
    if long:
        replies = examiner.counts(long_counts(long), None, LONG_CAPACITY_TOKENS)
        found["long_counts"] = summary(replies, failures=long)
        found["count_to_4000"] = asdict(replies[0])
    return found | {"evaluation_s": round(time.monotonic() - started_s, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--long", type=int, default=32, help="long counts, the one to 4000 first")
    parser.add_argument("--short", type=int, default=256, help="random counts of up to 200 numbers")
    parser.add_argument("--tasks", type=int, default=64, help="talks of each kind")
    parser.add_argument("--sequences", type=int, default=8, help="held-out sequences of each kind")
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    examiner = Examiner(load_model(given.weights, device, dtype), Encoder(given.tokenizer))
    found = report(examiner, long=given.long, short=given.short, tasks=given.tasks, sequences=given.sequences)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps({key: value for key, value in found.items() if key != "tasks"}, indent=None))
    for kind, figures in found["tasks"].items():
        print(kind, figures["exact"], "of", figures["asked"])


if __name__ == "__main__":
    main()
