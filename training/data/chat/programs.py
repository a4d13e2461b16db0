"""Tiny programs asked for by what they do, in Python."""

import random

from training.data.chat.turns import Turn

# what it does, then the code
PROGRAMS = (
    ("adds two numbers", "def add(a, b):\n    return a + b"),
    ("subtracts two numbers", "def subtract(a, b):\n    return a - b"),
    ("multiplies two numbers", "def multiply(a, b):\n    return a * b"),
    ("divides two numbers", "def divide(a, b):\n    return a / b"),
    ("returns the larger of two numbers", "def larger(a, b):\n    return a if a > b else b"),
    ("returns the square of a number", "def square(n):\n    return n * n"),
    ("checks if a number is even", "def is_even(n):\n    return n % 2 == 0"),
    ("checks if a number is odd", "def is_odd(n):\n    return n % 2 == 1"),
    ("reverses a string", "def reverse(text):\n    return text[::-1]"),
    ("counts the words in a text", "def count_words(text):\n    return len(text.split())"),
    ("returns the sum of a list", "def total(numbers):\n    return sum(numbers)"),
    ("returns the average of a list", "def average(numbers):\n    return sum(numbers) / len(numbers)"),
    ("finds the largest number in a list", "def largest(numbers):\n    return max(numbers)"),
    ("sorts a list", "def sort(items):\n    return sorted(items)"),
    (
        "computes the factorial of a number",
        "def factorial(n):\n    return 1 if n < 2 else n * factorial(n - 1)",
    ),
    (
        "returns the Fibonacci numbers",
        "def fibonacci(n):\n    a, b = 0, 1\n"
        "    for _ in range(n):\n        yield a\n        a, b = b, a + b",
    ),
    ("prints hello world", 'print("Hello, world!")'),
    ("counts from 1 to 10", "for number in range(1, 11):\n    print(number)"),
    ("reads a file", "def read_file(path):\n    with open(path) as file:\n        return file.read()"),
    ("greets a person", 'def greet(name):\n    return f"Hello, {name}!"'),
)  # fmt: skip


def program(rng: random.Random) -> Turn:
    """One of the programs."""
    does, code = rng.choice(PROGRAMS)
    kind = "function" if code.startswith("def") else "program"
    opening = rng.choice(
        ("Write a {}", "Write a Python {}", "Show me a {}", "Can you write a {}", "Give me a Python {}")
    )
    ask = opening.format(kind) + f" that {does}" + ("?" if opening.startswith("Can") else ".")
    return Turn(ask, f"```python\n{code}\n```", f"The user wants a {kind} that {does}.")
