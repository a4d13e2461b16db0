"""A call that finds no memory ends the stream it was for, by name, and no other stream's reply changes."""

import pytest
from lane_bench import ask, sized, solo

from hermitcrab.core.api import Failed
from hermitcrab.core.fake import CallKind
from hermitcrab.errors import DeviceMemory

NAMES = ("one", "two", "three")


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("kind", [CallKind.PREFILL, CallKind.DRAW_FIRST, CallKind.KEEP])
def test_a_lack_of_memory_ends_one_stream_of_a_crowd(kind: CallKind, nth: int) -> None:
    bench = sized(64, 64, 64)
    bench.submit(*(ask(name, max_new_tokens=30) for name in NAMES))
    while sum(call.kind is kind for call in bench.backend.calls) < nth - 1:
        bench.step()
    bench.backend.fail_next(kind, MemoryError("tried to allocate 8 GiB"))
    bench.run()
    ends = {name: bench.ears[name].terminal for name in NAMES}
    (failed,) = [name for name, end in ends.items() if isinstance(end, Failed)]
    end = ends[failed]
    assert isinstance(end, Failed)
    assert isinstance(end.error, DeviceMemory)
    for name in NAMES:
        if name != failed:
            assert bench.tokens(name) == solo(ask(name, max_new_tokens=30))
    assert bench.is_clean


def test_the_session_of_a_stream_that_found_no_memory_is_used_again() -> None:
    bench = sized(64)
    bench.submit(ask("one"), ask("two"))
    bench.backend.fail_next(CallKind.PREFILL, MemoryError("tried to allocate 8 GiB"))
    bench.run()
    assert isinstance(bench.ears["one"].terminal, Failed)
    assert bench.tokens("two") == solo(ask("two"))
