"""A decoder layer: a token mixer and the experts, each read from and written to the residual streams."""

from typing import Protocol

import torch
from torch import Tensor

from hermitcrab.kernels.experts import Experts, experts_of
from hermitcrab.kernels.linear import Linear
from hermitcrab.kernels.measures import Measures
from hermitcrab.kernels.mixer import Mixer
from hermitcrab.kernels.router import route
from hermitcrab.models.qwen4_exp.config import ModelConfig
from hermitcrab.models.qwen4_exp.plan import Plan
from hermitcrab.models.qwen4_exp.source import WeightSource
from hermitcrab.models.qwen4_exp.state import Sessions


class TokenMixer(Protocol):
    """What lets rows see the rows before them: rows [rows, hidden] -> [rows, hidden], sessions updated."""

    def __call__(self, rows: Tensor, plan: Plan, sessions: Sessions) -> Tensor: ...


class DecoderLayer:
    """One layer over residual streams [rows, streams, hidden]."""

    def __init__(
        self,
        source: WeightSource,
        name: str,
        config: ModelConfig,
        token_mixer: TokenMixer,
        measures: Measures,
    ) -> None:
        self._token_mixer = token_mixer
        self._attn_mixer = read_mixer(source, f"{name}.attn_hyper_connection", config, measures, injects=True)
        self._mlp_mixer = read_mixer(source, f"{name}.mlp_hyper_connection", config, measures, injects=True)
        self._moe = config.moe
        # router logits are float32 whatever the rows are: a bf16 tie would choose the expert
        self._router = Linear(source.wide(f"{name}.mlp.gate.weight"), measures.products)
        self._experts = _read_experts(source, f"{name}.mlp", measures)

    def __call__(self, streams: Tensor, plan: Plan, sessions: Sessions) -> Tensor:
        row, factors = self._attn_mixer.read(streams)
        streams = self._attn_mixer.write(streams, self._token_mixer(row, plan, sessions), factors)
        row, factors = self._mlp_mixer.read(streams)
        logits = self._router(row.float())
        routes = route(logits, self._moe.experts_per_token, is_normalised=self._moe.is_normalised)
        return self._mlp_mixer.write(streams, self._experts(row, routes), factors)


def read_mixer(
    source: WeightSource, name: str, config: ModelConfig, measures: Measures, *, injects: bool
) -> Mixer:
    """The hyper-connection stored under `name`."""
    return Mixer(
        source.gain(f"{name}.hc_norm").view(config.streams.count, config.hidden),
        source.get(f"{name}.input_mix_weight_down.weight"),
        source.get(f"{name}.input_mix_weight_up.weight"),
        source.get(f"{name}.block_inject_weight.weight") if injects else None,
        eps=config.norm_eps,
        measures=measures,
    )


def _read_experts(source: WeightSource, name: str, measures: Measures) -> Experts:
    shared = f"{name}.shared_expert"
    gate, up = source.get(f"{shared}.gate_proj.weight"), source.get(f"{shared}.up_proj.weight")
    return experts_of(
        source.get(f"{name}.experts.gate_up_proj"),
        source.get(f"{name}.experts.down_proj"),
        torch.cat((gate, up)),
        source.get(f"{shared}.down_proj.weight"),
        source.get(f"{name}.shared_expert_gate.weight"),
        measures=measures,
    )
