"""The recipe's word lists and tables, one text file each in `text/`."""

from pathlib import Path

TEXT = Path(__file__).parent / "text"


def lines(name: str) -> list[str]:
    """A file's lines."""
    return (TEXT / f"{name}.txt").read_text(encoding="utf-8").splitlines()


def words(name: str) -> list[str]:
    """A file's words, wherever its lines break."""
    return " ".join(lines(name)).split()


def table(name: str) -> list[list[str]]:
    """A table's rows, one a line, as lists of fields parted by `|`."""
    return [line.split("|") for line in lines(name)]


def listed(text: str) -> list[str]:
    """A comma list's entries."""
    return text.split(", ")
