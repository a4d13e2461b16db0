"""The `hermitcrab` program: subcommands imported when called; an error of ours is a sentence and status 2."""

import importlib
import sys
from collections.abc import Sequence

import click

import hermitcrab
from hermitcrab.errors import HermitcrabError

# subcommand -> the module that has it as `command`, and what the overview says of it
_COMMANDS = {
    "serve": ("hermitcrab.cli.serve", "Serve a model over the OpenAI API."),
    "chat": ("hermitcrab.cli.chat", "Talk to a running server in the terminal."),
    "info": ("hermitcrab.cli.info", "Say what a model directory holds."),
    "plan": ("hermitcrab.cli.plan", "Say what a model and its sessions need in memory, without loading it."),
    "parity": (
        "hermitcrab.cli.parity",
        "Prove that replies are the same alone, in a crowd, drafted and moved.",
    ),
    "replay": ("hermitcrab.cli.replay", "Run the lanes again from a server's trail, and compare."),
    "simulate": ("hermitcrab.cli.simulate", "Try session lists on a load, with no model and no waiting."),
    "settings": ("hermitcrab.cli.settings_page", "Print every setting as a Markdown page."),
}

USAGE_STATUS = 2
INTERRUPTED_STATUS = 130


class _LazyCommands(click.Group):
    """Knows its subcommands by name, and loads one only when it is run or asked for help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command = importlib.import_module(_COMMANDS[cmd_name][0]).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_, words) in _COMMANDS.items()])


_PROGRAM = _LazyCommands(
    name="hermitcrab",
    help="One large hybrid language model, many conversations, sessions that fit.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
_PROGRAM = click.version_option(hermitcrab.__version__, prog_name="hermitcrab")(_PROGRAM)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit status."""
    try:
        result = _PROGRAM.main(arguments, prog_name="hermitcrab", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return USAGE_STATUS
    except click.ClickException as error:
        return _fail(error.format_message())
    except HermitcrabError as error:
        return _fail(str(error))
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED_STATUS
    return result if isinstance(result, int) else 0


def _fail(sentence: str) -> int:
    click.echo(f"hermitcrab: {sentence}", file=sys.stderr)
    return USAGE_STATUS
