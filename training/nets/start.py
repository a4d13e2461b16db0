"""First weights: fan-in scaled matrices, memories from a few rows to thousands in the DeltaNet gates."""

import torch
from torch import nn

from training.nets.deltanet import DeltaParts
from training.nets.model import Model
from training.nets.moe import SwitchMlp
from training.nets.ngram import NgramTables
from training.shape import Shape

EMBEDDING_STD = 0.05


def fresh_model(shape: Shape, seed: int) -> Model:
    """A model with random weights that depend on the shape and the seed alone."""
    model = Model(shape)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in model.modules():
            _start(module, generator)
        model.model.embed_tokens.weight.normal_(std=EMBEDDING_STD, generator=generator)
        model.lm_head.weight.normal_(std=EMBEDDING_STD, generator=generator)
    return model


def _start(module: nn.Module, generator: torch.Generator) -> None:
    if isinstance(module, nn.Linear):
        module.weight.normal_(std=0.5 / module.in_features**0.5, generator=generator)
    elif isinstance(module, SwitchMlp):
        for weight in (module.gate_proj, module.up_proj, module.down_proj):
            weight.normal_(std=0.5 / weight.shape[-1] ** 0.5, generator=generator)
    elif isinstance(module, NgramTables):
        module.ngram_embedding.normal_(std=EMBEDDING_STD, generator=generator)
    elif isinstance(module, DeltaParts):
        module.conv1d.normal_(std=0.3, generator=generator)
        module.A_log.uniform_(0.25, 8.0, generator=generator).log_()
        step = torch.empty_like(module.dt_bias).uniform_(generator=generator)
        step = 10 ** (step * 3 - 4)
        module.dt_bias.copy_(step + torch.log(-torch.expm1(-step)))
