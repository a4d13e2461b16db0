"""Our forward over sessions, and transformers' over the same weights: logits of every row, how near they
must be."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor
from torch.overrides import TorchFunctionMode

from hermitcrab.kernels.deltanet import CHUNK_ROWS
from hermitcrab.kernels.linear import choose_path
from hermitcrab.kernels.measures import Measures
from hermitcrab.models.qwen4_exp.checkpoint import Checkpoint
from hermitcrab.models.qwen4_exp.fields import CONFIG_FILE, read_json
from hermitcrab.models.qwen4_exp.model import Model
from hermitcrab.models.qwen4_exp.plan import Span
from hermitcrab.models.qwen4_exp.state import Sessions

torch.set_num_threads(1)

RESET = 2

# The tiny models' logits have a standard deviation near 0.45. Two float32 implementations sum in different
# orders, and up to 8 layers of random weights multiply what that makes: 1e-4 at most was seen. Another
# position, selected block, expert or epsilon moves some logit by more than 0.05. Holds for every logit.
FLOAT32_LOGITS = 5e-4

# bfloat16 keeps 8 bits, and a rounded router logit may choose another expert, which moves a whole row; so the
# mean over all logits is held: 0.04 at most was seen. Below the sparse budget only: above it, selected blocks
# may change too.
BFLOAT16_MEAN = 0.08


def text_with_resets(
    count: int, *, seed: int, vocab_tokens: int = 512, resets: Sequence[int] = ()
) -> list[int]:
    """Random tokens, none of them the reset token but at the places `resets`."""
    generator = torch.Generator().manual_seed(seed)
    tokens: list[int] = torch.randint(3, vocab_tokens, (count,), generator=generator).tolist()
    for place in resets:
        tokens[place] = RESET
    return tokens


class Engine:
    """Our model and its sessions; every call returns logits [rows, vocabulary] of the rows it ran."""

    def __init__(
        self, checkpoint: Checkpoint, session_rows: Sequence[int] = (256,), dtype: torch.dtype = torch.float32
    ) -> None:
        self.model = Model(
            checkpoint,
            dtype=dtype,
            context_rows=max(session_rows),
            measures=Measures(products=choose_path(dtype)),
        )
        self.sessions = Sessions(checkpoint.config, session_rows, dtype)
        self.lengths = [0] * len(session_rows)

    def streams_of_prompt(self, tokens: Sequence[int], slot: int = 0) -> Tensor:
        """Run a prompt from the slot's length on; residual streams [rows, streams, hidden]."""
        streams: list[Tensor] = []
        with torch.inference_mode():
            for start in range(0, len(tokens), CHUNK_ROWS):
                chunk = tuple(tokens[start : start + CHUNK_ROWS])
                plan = self.model.plan([Span(slot, self.lengths[slot], chunk)], self.sessions, is_prompt=True)
                streams.append(self.model.forward(plan, self.sessions))
                self.lengths[slot] += len(chunk)
        return torch.cat(streams)

    def prompt(self, tokens: Sequence[int], slot: int = 0) -> Tensor:
        """Run a prompt from the slot's length on."""
        streams = self.streams_of_prompt(tokens, slot)
        with torch.inference_mode():
            return self.model.logits(streams)

    def round(
        self, windows: Mapping[int, Sequence[int]], keep: Mapping[int, int] | None = None
    ) -> dict[int, Tensor]:
        """Run one window a slot in one forward, then keep all of its rows, or the first `keep[slot]`."""
        spans = [Span(slot, self.lengths[slot], tuple(tokens)) for slot, tokens in windows.items()]
        with torch.inference_mode():
            plan = self.model.plan(spans, self.sessions, is_prompt=False)
            logits = self.model.logits(self.model.forward(plan, self.sessions))
            for place, (slot, tokens) in enumerate(windows.items()):
                kept = len(tokens) if keep is None else keep[slot]
                self.model.keep(plan, place, kept, self.sessions)
                self.lengths[slot] += kept
        pieces = logits.split([len(span.tokens) for span in spans])
        return dict(zip(windows, pieces, strict=True))

    def decode(self, tokens: Sequence[int], slot: int = 0) -> Tensor:
        """Run reply tokens one by one."""
        return torch.cat([self.round({slot: [token]})[slot] for token in tokens])


class TotalOrder(TorchFunctionMode):
    """Makes `topk` break ties as the family's servers should: by the lower index.

    torch's own order among equals is arbitrary, and block scores are often equal, at exactly 0.
    """

    def __torch_function__(
        self, func: Callable[..., object], types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        named = kwargs or {}
        if func not in (torch.topk, Tensor.topk):
            return func(*args, **named)
        values, count = args
        dim = named.get("dim", -1)
        ranked = torch.sort(values, dim=dim, descending=True, stable=True)
        return torch.return_types.topk(
            (ranked.values.narrow(dim, 0, count), ranked.indices.narrow(dim, 0, count))
        )


@dataclass(frozen=True)
class Oracle:
    """transformers' model in float32."""

    model: transformers.Qwen4ExpForCausalLM

    def whole(self, tokens: Sequence[int]) -> Tensor:
        """Logits of all rows from one pass without a cache."""
        with torch.inference_mode(), TotalOrder():
            return self.model(torch.tensor([list(tokens)]), use_cache=False).logits[0]

    def cached(self, prompt: Sequence[int], reply: Sequence[int]) -> Tensor:
        """Logits of the reply's rows, one token a pass, after a pass over the prompt."""
        with torch.inference_mode(), TotalOrder():
            # renamed within the range of versions that the tests allow
            is_renamed = "cache" in signature(self.model.forward).parameters
            past = {
                ("cache" if is_renamed else "past_key_values"): transformers.DynamicCache(
                    config=self.model.config
                )
            }
            self.model(torch.tensor([list(prompt)]), **past)
            rows = [self.model(torch.tensor([[token]]), **past).logits[0] for token in reply]
        return torch.cat(rows)


def oracle_from_disk(directory: Path) -> Oracle:
    """transformers' own reading of an original checkpoint."""
    config = transformers.Qwen4ExpTextConfig.from_pretrained(directory)
    model = transformers.Qwen4ExpForCausalLM.from_pretrained(directory, config=config, dtype=torch.float32)
    return Oracle(model.eval())


def oracle_from_mlx(directory: Path) -> Oracle:
    """transformers' model with an MLX checkpoint's weights, dequantized and renamed here."""
    text = read_json(directory / CONFIG_FILE)["text_config"]
    assert isinstance(text, dict)
    model = transformers.Qwen4ExpForCausalLM(transformers.Qwen4ExpTextConfig(**text)).eval()
    stored = load_file(directory / "model.safetensors")
    table = read_json(directory / CONFIG_FILE).get("quantization", {})
    assert isinstance(table, dict)
    plain: dict[str, Tensor] = {}
    for name, value in stored.items():
        module = name.removesuffix(".weight")
        if f"{module}.scales" in stored and name == f"{module}.weight":
            bits = table.get(module, table)["bits"]
            plain[name] = _dequantized(value, stored[f"{module}.scales"], stored[f"{module}.biases"], bits)
        elif not name.endswith((".scales", ".biases")):
            plain[name] = value
    state = _original_names(plain)
    if model.config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True)
    return Oracle(model)


def _dequantized(words: Tensor, scales: Tensor, biases: Tensor, bits: int) -> Tensor:
    """value = scale * q + bias; the numbers stand in a row's words as one stream of bits, lowest first."""
    raw = words.numpy().view(np.uint8)
    stream = np.unpackbits(raw, axis=-1, bitorder="little")
    numbers = stream.reshape(*stream.shape[:-1], -1, bits) @ (1 << np.arange(bits))
    grouped = torch.from_numpy(numbers).float().view(*scales.shape, -1)
    return (grouped * scales.float().unsqueeze(-1) + biases.float().unsqueeze(-1)).flatten(-2)


def _original_names(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    named: dict[str, Tensor] = {}
    shards: dict[str, list[tuple[int, Tensor]]] = {}
    for name, value in stored.items():
        outer = name.removeprefix("language_model.")
        if outer.startswith("mtp."):
            continue
        if ".ngram_embedding." in outer:
            module, _, shard = outer.removesuffix(".weight").rpartition(".")
            shards.setdefault(module, []).append((int(shard.rpartition("_")[2]), value))
        elif outer.endswith(".switch_mlp.up_proj.weight"):
            gate = stored[name.replace("up_proj", "gate_proj")]
            fused = outer.replace("switch_mlp.up_proj.weight", "experts.gate_up_proj")
            named[fused] = torch.cat((gate, value), dim=1)
        elif outer.endswith(".switch_mlp.down_proj.weight"):
            named[outer.replace("switch_mlp.down_proj.weight", "experts.down_proj")] = value
        elif not outer.endswith(".switch_mlp.gate_proj.weight"):
            named[outer] = value.transpose(1, 2) if "conv1d" in outer else value
    for module, parts in shards.items():
        named[f"{module}.weight"] = torch.cat([rows for _, rows in sorted(parts, key=lambda part: part[0])])
    return named


def furthest(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference between two tables of logits."""
    assert ours.shape == theirs.shape
    return float((ours - theirs).abs().max())


def apart_on_average(ours: Tensor, theirs: Tensor) -> float:
    """The mean difference between two tables of logits."""
    assert ours.shape == theirs.shape
    return float((ours - theirs).abs().mean())
