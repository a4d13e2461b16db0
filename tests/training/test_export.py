"""An exported model is one that Hermitcrab loads, and the forward that trains is the forward that serves."""

from pathlib import Path

import pytest
import torch
from training.data.documents import Encoder
from training.data.mixture import Mixture
from training.export import export
from training.exported import load_exported
from training.heldout import Judge
from training.nets.model import Batch, Model, Pass, Plan, logits_of, pieces
from training.nets.start import fresh_model
from training.shape import BUILTIN, Shape

from hermitcrab.models.registry import family_of


@pytest.fixture(scope="module")
def small_export(small: Shape, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model of the small shape, whose n-gram convolution is not the zeros it starts from."""
    folder = tmp_path_factory.mktemp("small")
    model = fresh_model(small, 3)
    torch.nn.init.normal_(
        model.model.layers[1].ple.conv1d, std=0.3, generator=torch.Generator().manual_seed(4)
    )
    export(model, folder)
    return folder


def trained_logits(shape: Shape, folder: Path, ids: list[int]) -> torch.Tensor:
    """Logits of the training nets with the weights that the export holds."""
    model = Model(shape).requires_grad_(requires_grad=False)
    load_exported(model, folder)
    # the look-ahead of a training sequence; a trunk's rows do not see it
    tokens = torch.tensor([[*ids, 0, 0, 0, 0]])
    batch = Batch(tokens, torch.ones(tokens.shape), torch.arange(len(ids)).unsqueeze(0))
    run = Pass(model, pieces(compiled=False), batch, Plan(budget_blocks=shape.budget_blocks))
    return logits_of(model.model.hyper_connection_mixer, model.lm_head, run.trunk())


def served_logits(folder: Path, ids: list[int]) -> torch.Tensor:
    """Logits of Hermitcrab's forward."""
    return Judge(family_of(folder).load(folder, None), longest_tokens=1_024).logits(ids)


def test_an_untrained_export_has_nothing_that_keeps_it_from_being_served(small_export: Path) -> None:
    info = family_of(small_export).describe(small_export)
    assert info.problem is None
    assert info.missing == ()
    assert info.layout == "MLX"
    assert info.has_draft_head


def test_the_built_in_model_has_the_shape_of_the_recipe(builtin: Path) -> None:
    config = family_of(builtin).load(builtin, None).config
    assert (config.vocab_tokens, config.hidden, len(config.layers), config.mtp_layers) == (
        BUILTIN.vocab_size,
        BUILTIN.hidden_size,
        BUILTIN.num_hidden_layers,
        BUILTIN.mtp_num_hidden_layers,
    )


@pytest.mark.parametrize("length_tokens", [32, 192])
def test_an_untrained_export_is_served_as_the_training_nets_compute_it(
    small: Shape, small_export: Path, length_tokens: int
) -> None:
    # 192 tokens are three times the small shape's indexer budget
    ids = torch.randint(
        9, small.vocab_size, (length_tokens,), generator=torch.Generator().manual_seed(7)
    ).tolist()
    # two implementations in float32 that sum in other orders
    torch.testing.assert_close(
        served_logits(small_export, ids), trained_logits(small, small_export, ids), rtol=1e-3, atol=1e-3
    )


def test_the_built_in_model_is_served_as_the_training_nets_compute_it(
    builtin: Path, encoder: Encoder
) -> None:
    mixture, ids = Mixture(encoder, 17), list[int]()
    while len(ids) < 640:
        ids += [*mixture.document(500, "code").ids.tolist(), 0]
    # past the indexer's budget of 512 keys; logits are up to about 40
    served, trained = (
        found(ids[:640])
        for found in (
            lambda ids: served_logits(builtin, ids),
            lambda ids: trained_logits(BUILTIN, builtin, ids),
        )
    )
    torch.testing.assert_close(served, trained, rtol=1e-3, atol=1e-2)
    assert torch.equal(served.argmax(-1), trained.argmax(-1))
