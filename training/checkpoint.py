"""Weights in parts small enough to carry: bf16 safetensors files of at most 15 MB.

The optimizer's momentum is not kept: a resumed run warms up again over its first steps.
"""

import json
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from training.nets.model import Model

PART_BYTES = 15_000_000


def save_weights(weights: dict[str, Tensor], folder: Path, *, step: int) -> None:
    """Write the weights and the step they are from; an earlier save there is replaced whole."""
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("part-*.safetensors"):
        stale.unlink()
    part: dict[str, Tensor] = {}
    number = part_bytes = 0
    for name, weight in weights.items():
        narrow = weight.detach().bfloat16().contiguous().cpu() if weight.is_floating_point() else weight.cpu()
        narrow_bytes = narrow.numel() * narrow.element_size()
        if part and part_bytes + narrow_bytes > PART_BYTES:
            save_file(part, folder / f"part-{number}.safetensors")
            part, part_bytes, number = {}, 0, number + 1
        part[name] = narrow
        part_bytes += narrow_bytes
    save_file(part, folder / f"part-{number}.safetensors")
    for path in folder.glob("part-*.safetensors"):
        path.chmod(0o644)
    (folder / "progress.json").write_text(json.dumps({"step": step}))


def load_weights(model: Model, folder: Path) -> int:
    """Fill the model from a save, whatever its dtype; returns the step the save is from."""
    found: dict[str, Tensor] = {}
    for path in sorted(folder.glob("part-*.safetensors")):
        found |= load_file(path)
    model.load_state_dict(found)
    return int(json.loads((folder / "progress.json").read_text())["step"])
