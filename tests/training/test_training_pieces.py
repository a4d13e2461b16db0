"""Training goes on from exactly the weights that the piece before it left."""

import itertools
from pathlib import Path

import pytest
import torch
from training.checkpoint import load_weights
from training.exported import load_exported
from training.nets.model import Model
from training.schedule import LAST_RATE, Schedule
from training.shape import BUILTIN
from training.trainer import Run, Trainer


def run(tokenizer: Path, out: Path, *, resume: Path | None = None) -> Run:
    """Two steps on sequences of 128 tokens, in this process."""
    return Run(
        tokenizer=tokenizer,
        out=out,
        steps=2,
        seconds=1e9,
        resume=resume,
        peak=3e-3,
        seed=1,
        workers=0,
        scale=16,
        compiled=False,
        save_every_s=1e9,
    )


@pytest.fixture(scope="module")
def first(builtin: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A piece of two steps from fresh weights."""
    out = tmp_path_factory.mktemp("first")
    Trainer(run(builtin, out), torch.device("cpu")).train()
    return out


def weights_in(folder: Path) -> dict[str, torch.Tensor]:
    model = Model(BUILTIN).to(torch.bfloat16)
    load_weights(model, folder)
    return model.state_dict()


def test_a_resumed_piece_begins_with_the_weights_and_the_step_that_were_saved(
    builtin: Path, first: Path, tmp_path: Path
) -> None:
    resumed = Trainer(run(builtin, tmp_path, resume=first), torch.device("cpu"))
    assert resumed.started_at_step == 2
    for name, weight in weights_in(first).items():
        assert torch.equal(resumed.model.state_dict()[name], weight), name


def test_the_same_piece_twice_leaves_the_same_weights(builtin: Path, first: Path, tmp_path: Path) -> None:
    Trainer(run(builtin, tmp_path), torch.device("cpu")).train()
    again = weights_in(tmp_path)
    for name, weight in weights_in(first).items():
        assert torch.equal(again[name], weight), name


def test_steps_change_the_weights(builtin: Path, first: Path, tmp_path: Path) -> None:
    fresh = Trainer(run(builtin, tmp_path), torch.device("cpu")).model.state_dict()
    moved = [name for name, weight in weights_in(first).items() if not torch.equal(fresh[name], weight)]
    assert {"lm_head.weight", "model.embed_tokens.weight", "mtp.fc_hidden.weight"} <= set(moved)


def test_a_piece_can_begin_with_an_exported_model(builtin: Path, tmp_path: Path) -> None:
    resumed = Trainer(run(builtin, tmp_path, resume=builtin), torch.device("cpu"))
    expected = Model(BUILTIN).to(torch.bfloat16)
    load_exported(expected, builtin)
    assert resumed.started_at_step == 0
    for name, weight in expected.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], weight), name


def test_the_rate_rises_then_falls_over_the_second_half() -> None:
    schedule = Schedule(steps=1_000, peak=1.0)
    rates = [schedule.at(step).rate for step in range(1_000)]
    assert rates[0] == pytest.approx(0.01)
    assert rates[99:501] == [1.0] * 402
    assert all(later < earlier for earlier, later in itertools.pairwise(rates[500:]))


def test_a_resumed_piece_trains_sparse_attention_and_chained_drafts_from_its_first_step() -> None:
    fresh, resumed = Schedule(1_000, 1.0).at(0), Schedule(1_000, 1.0, resumes=True).at(0)
    assert (fresh.budget_blocks, fresh.chains) == (None, False)
    assert (resumed.budget_blocks is not None, resumed.chains) == (True, True)


def test_a_piece_ends_its_schedule_by_its_seconds_if_they_are_spent_before_its_steps() -> None:
    schedule = Schedule(steps=1_000, peak=1.0, resumes=True)
    assert schedule.at(100, spent=0.75).rate == pytest.approx(schedule.at(750).rate)
    assert schedule.at(100, spent=1.2).rate == pytest.approx(LAST_RATE)


def test_a_resumed_piece_rounds_its_weights_from_its_first_step() -> None:
    assert Schedule(1_000, 1.0, resumes=True).at(0).rounds
    assert not Schedule(1_000, 1.0).at(0).rounds
