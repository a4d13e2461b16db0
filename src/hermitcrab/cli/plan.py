"""`hermitcrab plan`: what a model and its sessions need in memory, line by line, with nothing loaded."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hermitcrab.assemble import PlanRequest, parse_format, plan_memory
from hermitcrab.errors import SettingError
from hermitcrab.memory.budget import GIB
from hermitcrab.memory.plan import MemoryPlan

# the table's width where no terminal has one
_PAGE_COLUMNS = 110

_GB = 1e9


def plan_table(plan: MemoryPlan) -> Table:
    """A use of memory a line: those under the limit and their sum, then what lies beside it."""
    table = Table(title=plan.engine, title_justify="left", pad_edge=False)
    table.add_column("what")
    for unit in ("GB", "GiB"):
        table.add_column(unit, justify="right")
    table.add_column("how")
    for line in plan.lines:
        table.add_row(line.name, *_amounts(line.bytes), Text(line.note))
    for item in plan.sessions:
        name = f"{item.count} x {item.tokens} tokens"
        each = "" if item.count == 1 else f"{item.bytes_each / _GB:.3f} GB each"
        table.add_row(name, *_amounts(item.total_bytes), each)
    table.add_section()
    table.add_row("needed", *_amounts(plan.needed_bytes))
    table.add_row("the cap", *_amounts(plan.ledger.cap_bytes), _cap_source(plan))
    table.add_row("left", *_amounts(plan.left_bytes))
    table.add_section()
    for line in plan.beside:
        table.add_row(line.name, *_amounts(line.bytes), Text(line.note))
    return table


def _amounts(count: int) -> tuple[str, str]:
    return f"{count / _GB:.3f}", f"{count / GIB:.3f}"


def _cap_source(plan: MemoryPlan) -> str:
    device = f"{plan.ledger.device_bytes / _GB:.1f} GB"
    return f"70 % of {device}" if plan.ledger.limit_bytes is None else f"the limit, on {device}"


def _show(plan: MemoryPlan) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _PAGE_COLUMNS
    console.print(plan_table(plan))
    if plan.is_planned:
        console.print("That engine is not built yet: its work buffers are an estimate.", style="dim")
    console.print("It fits." if plan.refusal is None else "It does not fit.")
    for words in plan.suggestions:
        console.print(words, soft_wrap=True)


def _document(plan: MemoryPlan) -> dict[str, Any]:
    return {
        "engine": plan.engine,
        "is_planned": plan.is_planned,
        "fits": plan.refusal is None,
        "device_bytes": plan.ledger.device_bytes,
        "cap_bytes": plan.ledger.cap_bytes,
        "needed_bytes": plan.needed_bytes,
        "left_bytes": plan.left_bytes,
        "lines": [dataclasses.asdict(line) for line in plan.lines],
        "sessions": [dataclasses.asdict(item) for item in plan.sessions],
        "beside": [dataclasses.asdict(line) for line in plan.beside],
        "refusal": plan.refusal,
        "suggestions": list(plan.suggestions),
    }


@click.command("plan")
@click.argument("model", metavar="[MODEL]", required=False)
@click.option("--context", type=click.IntRange(64), metavar="TOKENS", help="Slot 0. Default: the model's.")
@click.option("--slot-contexts", metavar="TOKENS", help="Sessions besides slot 0, as serve takes them.")
@click.option(
    "--engine",
    type=click.Choice(("cpu", "packed")),
    default="cpu",
    help="The CPU engine, or the planned GPU engine that keeps weights packed. Default: cpu.",
)
@click.option(
    "--dtype",
    type=click.Choice(("float32", "bfloat16")),
    default="float32",
    help="Weights and states of the CPU engine. Default: float32.",
)
@click.option(
    "--format",
    "stored_format",
    metavar="FORMAT",
    help="For a directory with a config.json and no weights: plan as if they were stored so, such as "
    "6bit-g32 or bfloat16.",
)
@click.option(
    "--limit-gb", type=click.FloatRange(0.001, 100_000), metavar="GB", help="The load limit to plan for."
)
@click.option(
    "--device-gb",
    type=click.FloatRange(0.001, 100_000),
    metavar="GB",
    help="Memory of the machine to plan for. Default: this one's; with --limit-gb as much as that.",
)
@click.option(
    "--cache-gb", type=click.FloatRange(0, 100_000), default=0.0, metavar="GB", help="For the prompt cache."
)
@click.option("--drafts", type=click.IntRange(0, 16), metavar="TOKENS", help="Most drafts of a window.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the plan there, too.")
def command(
    model: str | None,
    context: int | None,
    slot_contexts: str | None,
    engine: str,
    dtype: str,
    stored_format: str | None,
    limit_gb: float | None,
    device_gb: float | None,
    cache_gb: float,
    drafts: int | None,
    json_path: Path | None,
) -> int:
    """Say what MODEL and its sessions need in memory, and what would fit, without loading it.

    MODEL is a model directory; without one it is the built-in model. The machine may be another than this
    one: say what it has with --device-gb or --limit-gb. The status is 1 if the plan does not fit.
    """
    plan = plan_memory(
        PlanRequest(
            path=model,
            context_tokens=context,
            slot_contexts=slot_contexts,
            dtype=dtype,
            is_packed=engine == "packed",
            has_weights=stored_format is None,
            stored_format=None if stored_format is None else parse_format(stored_format),
            device_bytes=None if device_gb is None else int(device_gb * _GB),
            limit_bytes=None if limit_gb is None else int(limit_gb * _GB),
            cache_bytes=int(cache_gb * _GB),
            draft_depth=drafts,
        )
    )
    _show(plan)
    if json_path is not None:
        try:
            json_path.write_text(json.dumps(_document(plan), indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise SettingError(f"--json {json_path}: cannot be written: {error.strerror}") from error
    return 0 if plan.refusal is None else 1
