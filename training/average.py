"""Average a piece's weights with the exported model that it began with, to take back what it forgot.

python -m training.average PIECE_FOLDER EXPORTED_FOLDER SHARE OUTPUT_FOLDER

SHARE (0 to 1) is the piece's part. The output is a piece's folder, for `training.export`.
"""

import sys
from pathlib import Path

from torch import Tensor

from training.checkpoint import load_weights, save_weights
from training.exported import load_exported
from training.nets.model import Model
from training.shape import BUILTIN, Shape


def average(piece: Path, exported: Path, share: float, out: Path, shape: Shape = BUILTIN) -> None:
    """Write `share` of the piece's weights plus the rest of the export's; integers are the piece's."""
    ours, theirs = Model(shape), Model(shape)
    step = load_weights(ours, piece)
    load_exported(theirs, exported)
    earlier = theirs.state_dict()

    def between(name: str, weight: Tensor) -> Tensor:
        return earlier[name].lerp(weight, share) if weight.is_floating_point() else weight

    save_weights({name: between(name, weight) for name, weight in ours.state_dict().items()}, out, step=step)


def main() -> None:
    piece, exported, share, out = sys.argv[1:]
    average(Path(piece), Path(exported), float(share), Path(out))


if __name__ == "__main__":
    main()
