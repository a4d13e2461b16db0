"""A Gated DeltaNet layer: convolution, the gated delta rule, a gated norm."""

import torch
from torch import Tensor

from hermitcrab.kernels.activations import activations_of
from hermitcrab.kernels.conv1d import causal_conv
from hermitcrab.kernels.deltanet import DeltaRows, chunk, chunk_windows, steps
from hermitcrab.kernels.linear import Linear
from hermitcrab.kernels.measures import Measures
from hermitcrab.kernels.norm import l2_norm, rms_norm
from hermitcrab.models.qwen4_exp.config import ModelConfig, OutputGate
from hermitcrab.models.qwen4_exp.plan import Plan
from hermitcrab.models.qwen4_exp.source import WeightSource
from hermitcrab.models.qwen4_exp.state import Sessions


class DeltaNet:
    """One DeltaNet layer; `layer` is its place among the DeltaNet layers of the sessions."""

    def __init__(
        self, source: WeightSource, name: str, config: ModelConfig, *, layer: int, measures: Measures
    ) -> None:
        net = config.deltanet
        self._net, self._layer, self._dtype = net, layer, source.dtype
        # z and b come halved for their sigmoids; what those leave out goes into out_proj and beta's factor
        halves = {"in_proj_qkv": 1.0, "in_proj_z": 0.5, "in_proj_b": 0.5, "in_proj_a": 1.0}
        parts = [source.get(f"{name}.{part}.weight") * factor for part, factor in halves.items()]
        self._into = Linear(torch.cat(parts), measures.products)
        self._widths = [net.conv_channels, net.value_width, net.value_heads, net.value_heads]
        is_sigmoid = net.output_gate is OutputGate.SIGMOID
        out = source.get(f"{name}.out_proj.weight") * (0.5 if is_sigmoid else 1.0)
        self._out = Linear(out, measures.products)
        self._taps = source.wide(f"{name}.conv1d.weight").squeeze(1).t().mul(0.5).contiguous()
        self._rate = -source.wide(f"{name}.A_log").exp()
        self._dt_bias = source.wide(f"{name}.dt_bias")
        self._gain = source.wide(f"{name}.norm.weight")
        # q goes unscaled: key_dim^-1/2 would scale all that this norm takes in, so its eps carries it instead
        self._eps = config.norm_eps * net.key_dim
        self._activations = activations_of(measures)
        gates = self._activations
        self._gate = gates.twice_sigmoid_of_half if is_sigmoid else gates.silu_of_half
        self._steps = steps if measures.recurrence else chunk_windows

    def __call__(self, rows: Tensor, plan: Plan, sessions: Sessions) -> Tensor:
        """Run the rows from their sessions' states; rows [rows, hidden] -> [rows, hidden].

        Windows of one row and prompt chunks change the sessions; longer windows leave what `keep` needs in
        the plan.
        """
        mixed, z, b, a = torch.split(self._into(rows), self._widths, dim=-1)
        tails = sessions.conv_tails[self._layer].index_select(0, plan.slots)
        history = torch.cat((tails, plan.by_span(mixed)), dim=1)
        conv = self._activations.silu_of_half(causal_conv(history.float(), self._taps))
        delta = self._delta_rows(conv, plan.by_span(b), plan.by_span(a))
        state = sessions.states[self._layer].index_select(0, plan.slots)
        if plan.is_prompt:
            outputs, after = chunk(delta, state)
            self._commit(history, after, plan, sessions)
        else:
            outputs, states = self._steps(delta, state)
            if plan.padded is None:
                self._commit(history, states[0], plan, sessions)
            else:
                plan.conv_histories.append(history)
                plan.delta_states.append(states)
        normed = rms_norm(plan.by_row(outputs), self._gain, self._eps)
        gated = normed.view(-1, self._net.value_width).mul_(self._gate(z))
        return self._out(gated.to(self._dtype))

    def _delta_rows(self, conv: Tensor, b: Tensor, a: Tensor) -> DeltaRows:
        net = self._net
        spans, rows = conv.shape[:2]
        qk, v = torch.split(conv, [2 * net.key_width, net.value_width], dim=-1)
        qk = l2_norm(qk.reshape(spans, rows, 2 * net.key_heads, 1, net.key_dim))
        # each query and key head serves the same number of consecutive value heads
        qk = qk.expand(-1, -1, -1, net.value_heads // net.key_heads, -1)
        q, k = qk.reshape(spans, rows, 2, net.value_heads, net.key_dim).unbind(2)
        g = self._activations.softplus(a.float() + self._dt_bias).mul_(self._rate)
        beta = self._activations.twice_sigmoid_of_half(b).mul_(0.5)
        return DeltaRows(q, k, v.reshape(spans, rows, net.value_heads, net.value_dim), g, beta)

    def _commit(self, history: Tensor, state: Tensor, plan: Plan, sessions: Sessions) -> None:
        tail = self._net.conv_kernel - 1
        sessions.states[self._layer].index_copy_(0, plan.slots, state)
        sessions.conv_tails[self._layer].index_copy_(0, plan.slots, history[:, -tail:])
