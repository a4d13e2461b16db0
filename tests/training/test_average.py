"""An average of a piece and an export lies between them, weight by weight."""

from pathlib import Path

import torch
from training.average import average
from training.checkpoint import load_weights, save_weights
from training.export import export
from training.exported import load_exported
from training.nets.model import Model
from training.nets.start import fresh_model
from training.shape import Shape


def test_a_quarter_of_a_piece_is_a_quarter_of_the_way_from_the_export_to_it(
    small: Shape, tmp_path: Path
) -> None:
    export(fresh_model(small, 1).to(torch.bfloat16), tmp_path / "exported")
    piece = fresh_model(small, 2).to(torch.bfloat16)
    save_weights(piece.state_dict(), tmp_path / "piece", step=7)
    average(tmp_path / "piece", tmp_path / "exported", 0.25, tmp_path / "out", small)
    found, before = Model(small), Model(small)
    assert load_weights(found, tmp_path / "out") == 7
    load_exported(before, tmp_path / "exported")
    starts, ends = before.state_dict(), piece.state_dict()
    for name, weight in found.state_dict().items():
        expected = 0.75 * starts[name] + 0.25 * ends[name] if weight.is_floating_point() else ends[name]
        torch.testing.assert_close(weight, expected.to(weight.dtype), rtol=1e-2, atol=1e-5, msg=name)
