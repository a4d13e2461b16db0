"""The draft head through the real backend against the reference's chain, after prompts and after windows."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
import torch
from model_bench import FLOAT32_LOGITS, RESET, furthest, text_with_resets
from torch import Tensor

from hermitcrab.core.backend import DraftRequest, SlotId, Window
from hermitcrab.engine.backend import Limits, TorchBackend
from hermitcrab.errors import StateNotSettled
from hermitcrab.kernels.linear import choose_path
from hermitcrab.kernels.measures import Measures
from hermitcrab.models.qwen4_exp.checkpoint import Checkpoint, load_checkpoint
from hermitcrab.models.qwen4_exp.model import Model
from hermitcrab.models.qwen4_exp.reference import Reference
from hermitcrab.models.qwen4_exp.state import Sessions
from hermitcrab.models.qwen4_exp.tiny import SHAPES, Layout, tiny_config, write_tiny
from hermitcrab.sampling.params import Sampling
from hermitcrab.sampling.rule import draw

DEPTH = 3
GREEDY = Sampling()


class HeardModel(Model):
    """The model, keeping what the draft head's rows gave: logits [rows, vocabulary] a forward."""

    heard: list[Tensor]

    def draft_logits(self, streams: Tensor) -> Tensor:
        logits = super().draft_logits(streams)
        self.heard.append(logits.clone())
        return logits


@dataclass
class Drafting:
    """A backend with a draft head, and each slot's text: rows in its session, then the pending token."""

    model: HeardModel
    backend: TorchBackend
    texts: dict[int, list[int]] = field(default_factory=dict)

    def prompt(self, slot: int, tokens: Sequence[int], pending: int) -> None:
        self.backend.prefill(SlotId(slot), 0, tokens)
        self.texts[slot] = [*tokens, pending]

    def draft(
        self, slots: Sequence[int], depth: int, absorbed: dict[int, int]
    ) -> dict[int, tuple[Tensor, tuple[int, ...]]]:
        """Absorb each slot's last rows and draft; by slot, logits [depth, vocabulary] and drafts."""
        requests = []
        for slot in slots:
            line, count = self.texts[slot], absorbed[slot]
            position = len(line) - 1 - count
            requests.append(DraftRequest(SlotId(slot), position, tuple(line[position + 1 :]), depth, GREEDY))
        self.model.heard = []
        drafts = self.backend.draft(requests)
        return {
            slot: (torch.stack([logits[place] for logits in self.model.heard]), drafts[place])
            for place, slot in enumerate(slots)
        }

    def window(self, slot: int, tokens: Sequence[int], keep: int, pending: int) -> None:
        """Verify a window behind the pending token and keep its first rows; `pending` is the next token."""
        line = self.texts[slot]
        self.backend.verify([Window(SlotId(slot), len(line) - 1, (line[-1], *tokens), GREEDY)])
        self.backend.keep(SlotId(slot), keep)
        line += [*tokens[: keep - 1], pending]


@pytest.fixture(scope="module", params=["default", "wide", "deep", "sixbit"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    path = tmp_path_factory.mktemp(request.param)
    if request.param == "sixbit":
        write_tiny(path, layout=Layout.MLX, bits=6, seed=15)
    else:
        write_tiny(path, config=tiny_config(**SHAPES[request.param]), seed=15)
    return load_checkpoint(path)


@pytest.fixture(scope="module")
def reference(checkpoint: Checkpoint) -> Reference:
    return Reference(checkpoint)


@pytest.fixture
def drafting(checkpoint: Checkpoint) -> Drafting:
    rows = (192, 192)
    model = HeardModel(
        checkpoint,
        dtype=torch.float32,
        context_rows=max(rows),
        measures=Measures(products=choose_path(torch.float32)),
    )
    limits = Limits(
        row_limit=16,
        window_rows=1 + DEPTH,
        draft_depth=DEPTH,
        prompt_grid_rows=64,
        prompt_pass_rows=256,
        backlog_rows=96,
    )
    backend = TorchBackend(model, Sessions(checkpoint.config, rows, torch.float32), limits, threads=1)
    return Drafting(model, backend)


def expected_chain(reference: Reference, line: Sequence[int], depth: int) -> Tensor:
    """Logits [depth, vocabulary] after `line`, whose last token is pending."""
    return reference.drafts(reference.text(line[:-1]).streams, line[1:], depth)


# one token; below the budget; a whole chunk; one row into the second and third chunk
@pytest.mark.parametrize("rows", [1, 2, 11, 64, 65, 129])
def test_drafts_after_a_prompt_are_the_references(
    drafting: Drafting, reference: Reference, rows: int
) -> None:
    line = text_with_resets(rows + 1, seed=31, resets=[rows // 2] if rows > 2 else [])
    drafting.prompt(0, line[:-1], line[-1])
    logits, drafts = drafting.draft([0], DEPTH, {0: 1})[0]
    expected = expected_chain(reference, line, DEPTH)
    assert furthest(logits, expected) < FLOAT32_LOGITS
    assert drafts == tuple(expected.argmax(-1).tolist())


@pytest.mark.parametrize("start", [9, 62])
def test_drafts_after_windows_with_rejected_drafts_are_the_references(
    drafting: Drafting, reference: Reference, start: int
) -> None:
    """Rejected rows include ones that end an indexer block, and leave provisional rows of the head behind."""
    tokens = text_with_resets(start + 40, seed=32, resets=(4, start + 3))
    drafting.prompt(0, tokens[:start], tokens[start])
    drafting.draft([0], DEPTH, {0: 1})
    for keep, depth in ((1, 3), (4, 1), (2, 3), (3, 2), (1, 3), (4, 3), (2, 0), (1, 3)):
        end = len(drafting.texts[0])
        right = tokens[end : end + keep - 1]
        drafting.window(0, [*right, *[RESET, 7, 8][: 4 - keep]], keep, tokens[end + keep - 1])
        if depth == 0:
            assert drafting.backend.draft(
                [DraftRequest(SlotId(0), end - 1, tuple(tokens[end : end + keep]), 0, GREEDY)]
            ) == [()]
            continue
        logits, _ = drafting.draft([0], depth, {0: keep})[0]
        assert furthest(logits, expected_chain(reference, drafting.texts[0], depth)) < FLOAT32_LOGITS


# in the shared forward; through the prompt kernels; through two chunks of them
@pytest.mark.parametrize("waiting", [3, 25, 80])
def test_drafts_after_rows_that_waited_are_the_references(
    drafting: Drafting, reference: Reference, waiting: int
) -> None:
    tokens = text_with_resets(30 + waiting, seed=36, resets=(12, 21))
    drafting.prompt(0, tokens[:20], tokens[20])
    drafting.prompt(1, tokens[:9], tokens[9])
    while len(drafting.texts[0]) - 20 < waiting:
        end = len(drafting.texts[0])
        keep = min(1 + end % 3, waiting + 20 - end)
        right = tokens[end : end + keep - 1]
        drafting.window(0, [*right, *[RESET, 7, 8][: 4 - keep]], keep, tokens[end + keep - 1])
    drafted = drafting.draft([0, 1], DEPTH, {0: waiting, 1: 1})
    for slot, (logits, _) in drafted.items():
        assert furthest(logits, expected_chain(reference, drafting.texts[slot], DEPTH)) < FLOAT32_LOGITS


def test_rows_wait_in_a_session_that_moves(drafting: Drafting, reference: Reference) -> None:
    tokens = text_with_resets(30, seed=37)
    drafting.prompt(0, tokens[:20], tokens[20])
    drafting.window(0, [*tokens[21:23], 7], 3, tokens[23])
    drafting.backend.move(SlotId(0), SlotId(1))
    drafting.texts[1] = drafting.texts[0]
    logits, _ = drafting.draft([1], DEPTH, {1: 4})[1]
    assert furthest(logits, expected_chain(reference, tokens[:24], DEPTH)) < FLOAT32_LOGITS


def test_of_more_rows_than_may_wait_none_is_kept_and_the_head_is_lost(drafting: Drafting) -> None:
    backlog_rows = drafting.backend.facts().backlog_rows
    assert backlog_rows < 192
    drafting.prompt(0, [5, 6, 7], 8)
    for _ in range(backlog_rows):
        drafting.window(0, [], 1, 9)
    with pytest.raises(StateNotSettled, match="other rows to absorb"):
        drafting.draft([0], DEPTH, {0: backlog_rows + 1})
    # the session itself goes on
    drafting.window(0, [], 1, 9)


def test_two_streams_of_unequal_length_drafted_together_each_get_the_references(
    drafting: Drafting, reference: Reference
) -> None:
    lines = {0: text_with_resets(72, seed=33, resets=(30,)), 1: text_with_resets(14, seed=34)}
    for slot, line in lines.items():
        drafting.prompt(slot, line[:-1], line[-1])
    for slot, (logits, _) in drafting.draft([0, 1], DEPTH, {0: 1, 1: 1}).items():
        assert furthest(logits, expected_chain(reference, lines[slot], DEPTH)) < FLOAT32_LOGITS


def test_a_depth_left_out_changes_nothing_in_the_ones_before_it(drafting: Drafting) -> None:
    line = text_with_resets(21, seed=35)
    drafting.prompt(0, line[:-1], line[-1])
    drafting.prompt(1, line[:-1], line[-1])
    deep, _ = drafting.draft([0], 3, {0: 1})[0]
    shallow, _ = drafting.draft([1], 1, {1: 1})[1]
    assert torch.equal(deep[:1], shallow)


def test_sampled_drafts_are_the_rules_draws_at_their_own_positions(drafting: Drafting) -> None:
    """A draft lands if it is what the target draws there, so the noise must be that of its position."""
    line = text_with_resets(21, seed=37)
    hot = Sampling(temperature=2.0, top_k=50, seed=9)
    drafting.prompt(0, line[:-1], line[-1])
    drafting.model.heard = []
    (drafts,) = drafting.backend.draft([DraftRequest(SlotId(0), 19, (line[-1],), DEPTH, hot)])
    # the pending token stands at 20
    expected = [
        draw(logits[0].tolist(), 21 + place, hot) for place, logits in enumerate(drafting.model.heard)
    ]
    assert list(drafts) == expected


def test_the_head_reads_the_streams_and_the_next_token(reference: Reference) -> None:
    """The reference itself: another next token, or streams of another text, give other logits."""
    line = text_with_resets(12, seed=36)
    streams = reference.text(line[:-1]).streams
    logits = reference.drafts(streams, line[1:], 1)
    assert furthest(reference.drafts(streams, [*line[1:-1], 5], 1), logits) > 100 * FLOAT32_LOGITS
    assert furthest(reference.drafts(streams * 2.0 + 1.0, line[1:], 1), logits) > 100 * FLOAT32_LOGITS
