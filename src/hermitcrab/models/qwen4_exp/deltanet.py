"""A Gated DeltaNet layer: convolution, the gated delta rule, a gated norm."""

import torch
from torch import Tensor

from hermitcrab.kernels.activations import silu_of_half, softplus, twice_sigmoid_of_half
from hermitcrab.kernels.conv1d import causal_conv
from hermitcrab.kernels.deltanet import DeltaRows, chunk, steps
from hermitcrab.kernels.linear import Linear, ProductPath
from hermitcrab.kernels.norm import l2_norm, rms_norm
from hermitcrab.models.qwen4_exp.config import ModelConfig, OutputGate
from hermitcrab.models.qwen4_exp.plan import Plan
from hermitcrab.models.qwen4_exp.source import WeightSource
from hermitcrab.models.qwen4_exp.state import Sessions


class DeltaNet:
    """One DeltaNet layer; `layer` is its place among the DeltaNet layers of the sessions."""

    def __init__(
        self, source: WeightSource, name: str, config: ModelConfig, *, layer: int, path: ProductPath
    ) -> None:
        net = config.deltanet
        self._net, self._layer, self._eps, self._dtype = net, layer, config.norm_eps, source.dtype
        # z and b come halved for their sigmoids; what those leave out goes into out_proj and beta's factor
        halves = {"in_proj_qkv": 1.0, "in_proj_z": 0.5, "in_proj_b": 0.5, "in_proj_a": 1.0}
        parts = [source.get(f"{name}.{part}.weight") * factor for part, factor in halves.items()]
        self._into = Linear(torch.cat(parts), path)
        self._widths = [net.conv_channels, net.value_width, net.value_heads, net.value_heads]
        self._is_sigmoid = net.output_gate is OutputGate.SIGMOID
        self._out = Linear(source.get(f"{name}.out_proj.weight") * (0.5 if self._is_sigmoid else 1.0), path)
        self._taps = source.wide(f"{name}.conv1d.weight").squeeze(1).t().mul(0.5).contiguous()
        self._rate = -source.wide(f"{name}.A_log").exp()
        self._dt_bias = source.wide(f"{name}.dt_bias")
        self._gain = source.wide(f"{name}.norm.weight")

    def __call__(self, rows: Tensor, plan: Plan, sessions: Sessions) -> Tensor:
        """Run the rows from their sessions' states; rows [rows, hidden] -> [rows, hidden].

        Windows of one row and prompt chunks change the sessions; longer windows leave what `keep` needs in
        the plan.
        """
        net = self._net
        mixed, z, b, a = torch.split(self._into(rows), self._widths, dim=-1)
        history = torch.cat((sessions.conv_tails[self._layer, plan.slots], plan.by_span(mixed)), dim=1)
        state = sessions.states[self._layer, plan.slots]
        delta = self._delta_rows(
            silu_of_half(causal_conv(history.float(), self._taps)), plan.by_span(b), plan.by_span(a)
        )
        if plan.is_prompt:
            outputs, after = chunk(delta, state)
            self._commit(history, after, plan, sessions)
        else:
            outputs, states = steps(delta, state)
            if plan.padded is None:
                self._commit(history, states[0], plan, sessions)
            else:
                plan.conv_histories.append(history)
                plan.delta_states.append(states)
        normed = rms_norm(plan.by_row(outputs), self._gain, self._eps)
        gate = twice_sigmoid_of_half(z) if self._is_sigmoid else silu_of_half(z)
        gated = normed.view(-1, net.value_width).mul_(gate)
        return self._out(gated.to(self._dtype))

    def _delta_rows(self, conv: Tensor, b: Tensor, a: Tensor) -> DeltaRows:
        net = self._net
        spans, rows = conv.shape[:2]
        qk = l2_norm(conv[..., : 2 * net.key_width].reshape(spans, rows, 2 * net.key_heads, net.key_dim))
        # each query and key head serves the same number of consecutive value heads
        qk = qk.repeat_interleave(net.value_heads // net.key_heads, dim=2)
        q, k = torch.split(qk, net.value_heads, dim=2)
        v = conv[..., 2 * net.key_width :].reshape(spans, rows, net.value_heads, net.value_dim)
        g = softplus(a.float() + self._dt_bias).mul_(self._rate)
        return DeltaRows(q * net.key_dim**-0.5, k, v, g, twice_sigmoid_of_half(b).mul_(0.5))

    def _commit(self, history: Tensor, state: Tensor, plan: Plan, sessions: Sessions) -> None:
        tail = self._net.conv_kernel - 1
        sessions.states[self._layer].index_copy_(0, plan.slots, state)
        sessions.conv_tails[self._layer].index_copy_(0, plan.slots, history[:, -tail:])
