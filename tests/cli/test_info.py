"""`hermitcrab info`: a record's fields in words."""

from dataclasses import dataclass, field

from rich.console import Console

from hermitcrab.cli.info import info_table


@dataclass(frozen=True)
class Part:
    """A record within a record."""

    kind: str
    params: int
    size_bytes: int


@dataclass(frozen=True)
class Info:
    """A record with one field of each kind."""

    model_type: str = "qwen4_exp"
    layers: int = 48
    context_tokens: int = 262144
    weight_bytes: int = 3 << 29
    shard_bytes: int = 1000
    has_draft_head: bool = True
    quantization: str | None = None
    eos_ids: tuple[int, ...] = (1, 2)
    notes: tuple[str, ...] = ()
    parts: tuple[Part, ...] = (Part("bfloat16", 2000, 4000), Part("6-bit", 100, 80))
    kinds: dict[str, int] = field(default_factory=lambda: {"wide": 3, "narrow": 1})


def test_every_field_is_a_line_with_its_unit_in_words() -> None:
    console = Console(width=60)
    with console.capture() as captured:
        console.print(info_table(Info()))
    lines = [" ".join(line.split()) for line in captured.get().splitlines()]
    assert lines == [
        "model type qwen4_exp",
        "layers 48",
        "context tokens 262,144",
        "weight 1.5 GiB",
        "shard 1000 bytes",
        "draft head yes",
        "quantization none",
        "eos ids 1, 2",
        "notes none",
        "parts bfloat16, 2,000 params, 3.9 KiB",
        "6-bit, 100 params, 80 bytes",
        "kinds 3 wide, 1 narrow",
    ]
