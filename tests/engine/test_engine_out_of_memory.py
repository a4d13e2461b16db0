"""A real allocation that torch refuses becomes DeviceMemory, and other sessions go on with the same bits."""

import pytest
import torch
from engine_bench import Bench

from hermitcrab.core.backend import SlotId, Window
from hermitcrab.errors import DeviceFailed, DeviceMemory
from hermitcrab.models.qwen4_exp.model import Model
from hermitcrab.sampling.params import Sampling

GREEDY = Sampling()
FIRST, SECOND = SlotId(0), SlotId(1)
PROMPT = tuple(range(3, 23))


def allocate_too_much(logits: torch.Tensor) -> None:
    torch.empty(1 << 60)


def fail_otherwise(logits: torch.Tensor) -> None:
    raise RuntimeError("the device said no")


def test_an_allocation_that_fails_is_told_from_other_failures(models: dict[str, Model]) -> None:
    backend = Bench(models["default"], [64]).backend
    backend.prefill(FIRST, 0, PROMPT)
    backend.watch_logits(allocate_too_much)
    with pytest.raises(DeviceMemory, match="the first draw failed for want of memory"):
        backend.draw_first(FIRST, len(PROMPT), GREEDY)
    backend.watch_logits(fail_otherwise)
    with pytest.raises(DeviceFailed, match="the device said no") as caught:
        backend.draw_first(FIRST, len(PROMPT), GREEDY)
    assert not isinstance(caught.value, DeviceMemory)


def test_the_other_session_draws_what_it_would_have_drawn(models: dict[str, Model]) -> None:
    drawn = []
    for fails in (False, True):
        backend = Bench(models["default"], [64, 64]).backend
        backend.prefill(SECOND, 0, PROMPT)
        if fails:
            backend.prefill(FIRST, 0, PROMPT[::-1])
            backend.watch_logits(allocate_too_much)
            with pytest.raises(DeviceMemory):
                backend.draw_first(FIRST, len(PROMPT), GREEDY)
            backend.watch_logits(None)
            backend.release(FIRST)
        token = backend.draw_first(SECOND, len(PROMPT), GREEDY)
        (verified,) = backend.verify([Window(SECOND, len(PROMPT), (token,), GREEDY)])
        drawn.append((token, verified.drawn))
    assert drawn[0] == drawn[1]
