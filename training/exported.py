"""Read an exported checkpoint back into the training model."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from training.export import PREFIX, is_quantized
from training.nets.model import Model
from training.quantize import Groups, dequantize, unpack


def is_exported(folder: Path) -> bool:
    """True if the folder holds an export, not the parts that a trainer saves."""
    return (folder / "model.safetensors").exists()


def load_exported(model: Model, folder: Path) -> None:
    """Fill the model, whatever its dtype, with the values that a reader of the export sees.

    Raises KeyError for a tensor that is missing, RuntimeError for one of another shape.
    """
    tensors = load_file(folder / "model.safetensors")
    found: dict[str, Tensor] = {}
    for name, weight in model.state_dict().items():
        module = PREFIX + name.removesuffix(".weight")
        if name.endswith("ngram_embedding"):
            parts = range(model.shape.split_ngram_parts)
            found[name] = torch.cat([_read(tensors, f"{module}.shard_{part}") for part in parts])
        elif is_quantized(name, weight):
            found[name] = _read(tensors, module)
        elif name.endswith("conv1d"):
            found[name] = tensors[f"{module}.weight"].squeeze(-1)
        else:
            found[name] = tensors[module if module in tensors else f"{module}.weight"]
    model.load_state_dict(found)


def _read(tensors: dict[str, Tensor], module: str) -> Tensor:
    words, scales, biases = (tensors[f"{module}.{part}"] for part in ("weight", "scales", "biases"))
    return dequantize(Groups(unpack(words), scales, biases))
