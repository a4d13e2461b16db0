"""Which model family reads a checkpoint directory, by the model_type in its config.json."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from hermitcrab.models.qwen4_exp import checkpoint as qwen4_exp
from hermitcrab.models.qwen4_exp.fields import CONFIG_FILE, Fields, read_json


@dataclass(frozen=True, slots=True)
class Family:
    """How a family's checkpoints are read: `load(directory, progress)` whole, `describe` from headers."""

    name: str
    load: Callable[[Path, qwen4_exp.Progress | None], qwen4_exp.Checkpoint]
    describe: Callable[[Path], qwen4_exp.CheckpointInfo]


_QWEN4_EXP = Family("qwen4_exp", qwen4_exp.load_checkpoint, qwen4_exp.describe_checkpoint)

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "qwen4_exp": _QWEN4_EXP,
        "qwen4_exp_text": _QWEN4_EXP,
    }
)


def family_of(directory: Path) -> Family:
    """The family that reads the model in `directory`.

    Raises CheckpointError for a directory without config.json, and for a model_type that no family has,
    naming those known.
    """
    config = Fields(read_json(directory / CONFIG_FILE))
    return FAMILIES[str(config.choice("model_type", None, tuple(FAMILIES)))]
