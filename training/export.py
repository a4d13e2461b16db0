"""Write a trained model as the built-in checkpoint: one MLX 6-bit safetensors file and its config files.

python -m training.export WEIGHTS_FOLDER OUTPUT_FOLDER
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from training.checkpoint import load_weights
from training.nets.model import Model
from training.quantize import pack, quantize
from training.shape import BITS, BUILTIN, END_OF_TEXT_ID, GROUP_WEIGHTS, IM_END_ID, Shape

PREFIX = "language_model."
LIMIT_BYTES = 16_000_000


def is_quantized(name: str, weight: Tensor) -> bool:
    """Matrices are, except the router, the convolutions and the hash constants."""
    return (
        weight.dim() >= 2 and not name.endswith(("mlp.gate.weight", "conv1d")) and weight.is_floating_point()
    )


def checkpoint_tensors(model: Model) -> dict[str, Tensor]:
    """The model's tensors under their MLX names, matrices as weight, scales and biases."""
    tensors: dict[str, Tensor] = {}
    for name, weight in model.state_dict().items():
        module = PREFIX + name.removesuffix(".weight")
        if name.endswith("ngram_embedding"):
            for part, rows in enumerate(weight.chunk(model.shape.split_ngram_parts)):
                _add_quantized(tensors, f"{module}.shard_{part}", rows)
        elif is_quantized(name, weight):
            _add_quantized(tensors, module, weight)
        elif name.endswith("conv1d"):
            tensors[f"{module}.weight"] = weight.bfloat16().unsqueeze(-1).contiguous()
        elif name.endswith(("A_log", "dt_bias")) or not weight.is_floating_point():
            tensors[module] = weight.contiguous()
        else:
            tensors[f"{module}.weight"] = weight.bfloat16().contiguous()
    return tensors


def _add_quantized(tensors: dict[str, Tensor], module: str, weight: Tensor) -> None:
    groups = quantize(weight)
    tensors[f"{module}.weight"] = pack(groups.q)
    tensors[f"{module}.scales"] = groups.scales.contiguous()
    tensors[f"{module}.biases"] = groups.biases.contiguous()


def config(shape: Shape) -> dict[str, object]:
    """config.json: the family's layout, with the quantization and the modules left out of it."""
    layers = [f"model.layers.{layer}" for layer in range(shape.num_hidden_layers)]
    layers += [f"mtp.layers.{layer}" for layer in range(shape.mtp_num_hidden_layers)]
    quantization: dict[str, object] = {"group_size": GROUP_WEIGHTS, "bits": BITS, "mode": "affine"}
    quantization |= {f"{PREFIX}{layer}.mlp.gate": False for layer in layers}
    return {
        "architectures": ["Qwen4ExpForConditionalGeneration"],
        "model_type": "qwen4_exp",
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        "eos_token_id": END_OF_TEXT_ID,
        "text_config": shape.text_config(),
        "quantization": quantization,
        "quantization_config": quantization,
    }


def generation_config() -> dict[str, object]:
    """generation_config.json: the end tokens, and greedy replies as a toy should give."""
    return {"eos_token_id": [IM_END_ID, END_OF_TEXT_ID], "do_sample": False, "temperature": 0.0}


def export(model: Model, folder: Path) -> int:
    """Write the weights and configs; `training.tokenizer` writes the tokenizer's. Returns the bytes there.

    Raises SystemExit when the folder's files would not fit in the package.
    """
    folder.mkdir(parents=True, exist_ok=True)
    save_file(checkpoint_tensors(model), folder / "model.safetensors", metadata={"format": "mlx"})
    (folder / "model.safetensors").chmod(0o644)
    for name, content in (("config", config(model.shape)), ("generation_config", generation_config())):
        (folder / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")
    total_bytes = sum(path.stat().st_size for path in folder.iterdir())
    if total_bytes >= LIMIT_BYTES:
        raise SystemExit(f"{folder} holds {total_bytes} bytes; the package has room for {LIMIT_BYTES}")
    return total_bytes


def main() -> None:
    weights, folder = Path(sys.argv[1]), Path(sys.argv[2])
    model = Model(BUILTIN).to(torch.bfloat16)
    load_weights(model, weights)
    print(f"{folder}: {export(model, folder)} bytes")


if __name__ == "__main__":
    main()
