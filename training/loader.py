"""Batches from worker processes, the same for the same seed."""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from training.data.documents import Encoder
from training.data.mixture import Mixture
from training.nets.model import Batch


class Sequences(IterableDataset[tuple[Tensor, Tensor, Tensor]]):
    """Endless batches of packed sequences; each worker has its own random stream."""

    def __init__(self, tokenizer_folder: Path, *, sequences: int, length_tokens: int, seed: int) -> None:
        self.tokenizer_folder = tokenizer_folder
        self.sequences = sequences
        self.length_tokens = length_tokens
        self.seed = seed

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        worker = get_worker_info()
        mixture = Mixture(Encoder(self.tokenizer_folder), self.seed * 1000 + (worker.id if worker else 0))
        while True:
            found = [mixture.sequence(self.length_tokens) for _ in range(self.sequences)]
            yield (
                torch.stack([torch.from_numpy(one.ids) for one in found]),
                torch.stack([torch.from_numpy(one.weights) for one in found]),
                torch.stack([torch.from_numpy(one.positions[: self.length_tokens]) for one in found]),
            )


def batches(data: Sequences, device: torch.device, *, workers: int) -> Iterator[Batch]:
    """Batches on the device, made ahead by the workers."""
    pins = device.type == "cuda"
    loader = DataLoader(
        data, batch_size=None, num_workers=workers, prefetch_factor=6 if workers else None, pin_memory=pins
    )
    for tokens, weights, positions in loader:
        moved = (part.to(device, non_blocking=True) for part in (tokens, weights, positions))
        ids, shares, places = moved
        yield Batch(ids.long(), shares, places.long())
