"""Snippets of code by rule, and the talks that repeat them, rename in them or change a value in them."""

import random
import re
from collections.abc import Callable

from training.data.documents import Talk, assistant, system, user
from training.data.words import ADJECTIVES, NOUNS, VERBS

CODERS = (
    "You are a coding assistant.",
    "You write code.",
    "You are a helpful assistant.",
    "Reply with code only.",
)


def name(rng: random.Random) -> str:
    """An identifier in one of the usual styles."""
    choice = rng.random()
    if choice < 0.3:
        return rng.choice(NOUNS)
    if choice < 0.55:
        return f"{rng.choice(ADJECTIVES)}_{rng.choice(NOUNS)}"
    if choice < 0.7:
        return f"{rng.choice(NOUNS)}_{rng.choice(NOUNS)}"
    if choice < 0.85:
        return rng.choice(ADJECTIVES) + rng.choice(NOUNS).capitalize()
    if choice < 0.93:
        return rng.choice("abcdefghijkmnpqrstuvwxyz") + rng.choice(("", "", str(rng.randint(0, 9))))
    return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(3, 7)))


def names(rng: random.Random, count: int) -> list[str]:
    """Different identifiers."""
    found: list[str] = []
    while len(found) < count:
        new = name(rng)
        if new not in found:
            found.append(new)
    return found


def verb(rng: random.Random) -> str:
    """A function's name in snake case."""
    return rng.choice(VERBS) + (f"_{rng.choice(NOUNS)}" if rng.random() < 0.7 else "")


def number(rng: random.Random) -> str:
    """A literal, small most often."""
    choice = rng.random()
    if choice < 0.6:
        return str(rng.randint(0, 20))
    return str(rng.randint(0, 9999)) if choice < 0.9 else f"{rng.randint(0, 99)}.{rng.randint(1, 99)}"


def words(rng: random.Random) -> str:
    """The text of a string literal."""
    return " ".join(rng.choice(rng.choice((NOUNS, ADJECTIVES, VERBS))) for _ in range(rng.randint(1, 4)))


def python_body(rng: random.Random, known: list[str], lines: int, indent: str) -> list[str]:
    """Statements over known names."""
    body = []
    for _ in range(lines):
        a, b, c = rng.choice(known), rng.choice(known), rng.choice(known)
        sign = rng.choice("+-*")
        body += rng.choice(
            (
                [f"{a} = {b} {sign} {number(rng)}"],
                [f"{a} = {b} {sign} {c}"],
                [f"{a} += {number(rng)}"],
                [f'print("{words(rng)}", {a})'],
                [f"if {a} > {number(rng)}:", f"    {b} = {c} {sign} {number(rng)}"],
                [f"if {a} == {b}:", f"    return {c}"],
                [f"for {a} in range({number(rng)}):", f"    {b} {sign}= {a}", f"    {c} = {a} {sign} {b}"],
                [f"while {a} < {number(rng)}:", f"    {a} += {rng.randint(1, 9)}"],
                [f"{a} = {verb(rng)}({b}, {c})"],
                [f"{a} = [{number(rng)}, {number(rng)}, {number(rng)}]"],
                [f'{a} = "{words(rng)}"'],
                [f"{a}.append({b})"],
                [f"# {words(rng)}"],
                [f"assert {a} != {b}"],
                [f'{a} = {{"{rng.choice(NOUNS)}": {b}, "{rng.choice(NOUNS)}": {number(rng)}}}'],
            )
        )
    return [indent + line for line in body]


def python_code(rng: random.Random, known: list[str], lines: int) -> str:
    """A module of functions, or loose statements."""
    if lines < 5 and rng.random() < 0.5:
        return "\n".join(line for line in python_body(rng, known, lines, "") if "return" not in line)
    parts: list[str] = []
    while lines > 0:
        size = rng.randint(2, 6)
        lines -= size + 2
        head = f"def {verb(rng)}({', '.join(rng.sample(known, rng.randint(0, min(3, len(known)))))}):"
        end = f"    return {rng.choice(known)}"
        if rng.random() < 0.2:
            inner = python_body(rng, known, size, "        ")
            title = rng.choice(NOUNS).capitalize()
            parts.append("\n".join([f"class {title}:", f"    {head}", *inner, f"    {end}"]))
        else:
            parts.append("\n".join([head, *python_body(rng, known, size, "    "), end]))
    return "\n\n".join(parts)


def brace_body(rng: random.Random, known: list[str], lines: int, declare: str) -> list[str]:
    """Statements in a language of braces."""
    body = []
    for _ in range(lines):
        a, b, c = rng.choice(known), rng.choice(known), rng.choice(known)
        sign = rng.choice("+-*")
        body += rng.choice(
            (
                [f"  {declare} {a} = {b} {sign} {number(rng)};"],
                [f"  {a} = {b} {sign} {c};"],
                [f"  {a} += {number(rng)};"],
                [f"  if ({a} > {number(rng)}) {{", f"    {b} = {c};", "  }"],
                [f"  if ({a} == {b}) {{", f"    return {c};", "  }"],
                [f"  while ({a} < {number(rng)}) {{", f"    {a}++;", "  }"],
                [f"  {a} = {verb(rng)}({b}, {c});"],
                [f'  {rng.choice(("log", "print", "puts"))}("{words(rng)}");'],
                [f"  // {words(rng)}"],
                [f"  {a}[{number(rng)}] = {b};"],
            )
        )
    return body


def javascript_code(rng: random.Random, known: list[str], lines: int) -> str:
    """Functions as a web page has them."""
    parts = []
    while lines > 0:
        size = rng.randint(2, 6)
        lines -= size + 3
        given = ", ".join(rng.sample(known, rng.randint(0, min(3, len(known)))))
        declare = rng.choice(("let", "const", "var"))
        body = brace_body(rng, known, size, declare)
        parts.append(
            "\n".join([f"function {name(rng)}({given}) {{", *body, f"  return {rng.choice(known)};", "}"])
        )
    return "\n\n".join(parts)


def c_code(rng: random.Random, known: list[str], lines: int) -> str:
    """Functions with plain types."""
    parts = []
    while lines > 0:
        size = rng.randint(2, 6)
        lines -= size + 3
        kind = rng.choice(("int", "int", "double", "long"))
        given = ", ".join(f"{kind} {one}" for one in rng.sample(known, rng.randint(0, min(3, len(known)))))
        body = brace_body(rng, known, size, kind)
        parts.append(
            "\n".join([f"{kind} {verb(rng)}({given}) {{", *body, f"  return {rng.choice(known)};", "}"])
        )
    return "\n\n".join(parts)


LANGUAGES: dict[str, Callable[[random.Random, list[str], int], str]] = {
    "python": python_code,
    "javascript": javascript_code,
    "c": c_code,
}


def snippet(rng: random.Random) -> tuple[str, str, list[str]]:
    """A language, code in it, and the names used there; a few lines most often."""
    language = rng.choice(("python", "python", "python", "javascript", "c"))
    known = names(rng, rng.randint(2, 6))
    lines = rng.choice((2, 3, 4, 6, 8, 10, 14, 20, 30))
    return language, LANGUAGES[language](rng, known, lines), known


def fenced(language: str, code: str) -> str:
    """Code as a reply shows it."""
    return f"```{language}\n{code}\n```"


def renamed(code: str, old: str, new: str) -> str:
    """The code with every whole word `old` replaced."""
    return re.sub(rf"\b{re.escape(old)}\b", new, code)


def repeat_ask(rng: random.Random) -> str:
    """A way to ask for the same text back."""
    return rng.choice(
        (
            "Repeat this code", "Repeat this code", "Repeat the code", "Copy this code",
            "Print this code again",
            "Show me this code again", "Repeat this code exactly", "Please repeat this code",
            "Write this code again",
            "Repeat the following code", "Give me this code back", "Repeat this", "Say this code back to me",
        )
    )  # fmt: skip


def rename_ask(rng: random.Random, old: str, new: str) -> str:
    """A way to ask for another name."""
    return rng.choice(
        (
            f"Rename {old} to {new} in this code", f"Rename {old} to {new} in this code",
            f"Rename {old} to {new}",
            f"Rename the variable {old} to {new}", f"Please rename {old} to {new}",
            f"Change the name {old} to {new}",
            f"In this code, rename {old} to {new}", f"Replace {old} with {new} in this code",
            f"Rename `{old}` to `{new}` in this code", f"Use {new} instead of {old} in this code",
        )
    )  # fmt: skip


def change_ask(rng: random.Random, place: str, value: str) -> str:
    """A way to ask for another value."""
    return rng.choice(
        (
            f"Change the value of {place} to {value}", f"Change {place} to {value} in this code",
            f"Set {place} to {value} in this code", f"Make {place} equal to {value}",
        )
    )  # fmt: skip


def asked(rng: random.Random, ask: str, language: str, code: str) -> str:
    """The user's turn: the ask before or after the code, fenced or bare."""
    shown = fenced(rng.choice((language, language, "")), code) if rng.random() < 0.7 else code
    if rng.random() < 0.15:
        return f"{shown}\n\n{ask}."
    return f"{ask}{rng.choice((':', ':', '.', ''))}\n{rng.choice(('', chr(10)))}{shown}"


def task(rng: random.Random, language: str, code: str, known: list[str]) -> tuple[str, str, str]:
    """An ask, the code that answers it, and the thought in between."""
    choice = rng.random()
    used = [one for one in known if re.search(rf"\b{re.escape(one)}\b", code)]
    if choice < 0.5 and used:
        old, new = rng.choice(used), name(rng)
        if new not in code:
            return (
                rename_ask(rng, old, new),
                renamed(code, old, new),
                f"I replace {old} with {new} everywhere.",
            )
    settings = re.findall(r"^ *(?:int |let |const |var )?(\w+) = (\d+)$", code, re.MULTILINE)
    if choice < 0.7:
        place, value = rng.choice(known).upper(), number(rng)
        if not settings:
            code = f"{place} = {number(rng)}\n{code}"
        else:
            place = settings[0][0]
        changed = re.sub(rf"(\b{re.escape(place)} = )[\d.]+", rf"\g<1>{value}", code, count=1)
        return (
            f"{code}\0{change_ask(rng, place, value)}",
            changed,
            f"I set {place} to {value} and keep the rest.",
        )
    return repeat_ask(rng), code, "I repeat the code as it is."


def code_talk(rng: random.Random) -> Talk:
    """One or two asks about one snippet; the second works on the first reply."""
    language, code, known = snippet(rng)
    thinks = rng.random() < 0.15
    messages = [system(rng.choice(CODERS))] if rng.random() < 0.25 else []
    ask, answer, why = task(rng, language, code, known)
    if "\0" in ask:
        code, ask = ask.split("\0")
    messages += [
        user(asked(rng, ask, language, code)),
        assistant(fenced(language, answer), why if thinks else None),
    ]
    if rng.random() < 0.25:
        used = [one for one in known if re.search(rf"\b{re.escape(one)}\b", answer)]
        new = name(rng)
        if used and new not in answer:
            old = rng.choice(used)
            why = f"I replace {old} with {new} everywhere."
            ask = f"Now rename {old} to {new}{rng.choice(('.', ''))}"
            messages += [
                user(ask),
                assistant(fenced(language, renamed(answer, old, new)), why if thinks else None),
            ]
        else:
            again = assistant(fenced(language, answer), "I repeat the code as it is." if thinks else None)
            messages += [user("Repeat it once more."), again]
    return Talk(messages, thinks=thinks)


def text_talk(rng: random.Random) -> Talk:
    """Repeat a line of words, or a short list of them."""
    thinks = rng.random() < 0.15
    said = words(rng) + " " + words(rng)
    if rng.random() < 0.3:
        said = "\n".join(f"- {words(rng)}" for _ in range(rng.randint(2, 8)))
    elif rng.random() < 0.5:
        said = said[0].upper() + said[1:] + rng.choice((".", "!", "?"))
    ask = rng.choice(
        ("Repeat after me: ", "Repeat: ", "Say this: ", "Repeat this: ", "Repeat this text: ", "Copy: ")
    )
    reply = assistant(said, "I repeat the text as it is." if thinks else None)
    return Talk([user(ask.rstrip() + "\n" + said if "\n" in said else ask + said), reply], thinks=thinks)
