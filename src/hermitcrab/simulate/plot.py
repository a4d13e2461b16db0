"""A picture of outcomes as SVG: what share of the requests waited so long at most, or had begun by then."""

from collections.abc import Sequence
from html import escape
from math import log10

from hermitcrab.simulate.outcome import Outcome

_COLOURS = ("#b3541e", "#1f6f8b", "#7a7a7a", "#3a7d34")
_DASHES = ("", "", "6 4", "")
_WIDTH, _HEIGHT = 880, 380
_LEFT, _TOP, _PANEL, _TALL, _GAP = 60, 60, 360, 240, 60

# seconds on the axis, a decade each; waits below the first count as none
_LEAST_S, _MOST_S = 0.01, 10_000.0


def plot(outcomes: Sequence[Outcome], *, title: str) -> str:
    """The whole file."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12" fill="#222">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="24" font-size="15">{escape(title)}</text>',
        *_panel(
            _LEFT,
            "requests that waited at most so many seconds",
            [[served.waited_s for served in outcome.served] for outcome in outcomes],
        ),
        *_panel(
            _LEFT + _PANEL + _GAP,
            "requests with their first token within so many seconds",
            [[served.first_token_s for served in outcome.served] for outcome in outcomes],
        ),
        *_legend(outcomes),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _panel(left: int, heading: str, seconds: Sequence[Sequence[float]]) -> list[str]:
    parts = [f'<text x="{left}" y="{_TOP - 12}">{escape(heading)}</text>']
    decade = _LEAST_S
    while decade <= _MOST_S:
        x = left + _across(decade)
        parts.append(f'<path d="M{x:.1f} {_TOP}V{_TOP + _TALL}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{_TOP + _TALL + 16}" text-anchor="middle">{decade:g}</text>')
        decade *= 10
    for percent in (0, 25, 50, 75, 100):
        y = _TOP + _TALL * (1 - percent / 100)
        parts.append(f'<path d="M{left} {y:.1f}h{_PANEL}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{percent} %</text>')
    for index, values in enumerate(seconds):
        parts.append(
            f'<path d="{_steps(left, sorted(values))}" fill="none" stroke-width="2" '
            f'stroke="{_COLOURS[index % len(_COLOURS)]}" stroke-dasharray="{_DASHES[index % len(_DASHES)]}"/>'
        )
    return parts


def _steps(left: int, ranked: Sequence[float]) -> str:
    """The distribution as a path: up by one request's share at its seconds."""
    path = [f"M{left} {_TOP + _TALL}"]
    for count, seconds in enumerate(ranked, start=1):
        y = _TOP + _TALL * (1 - count / len(ranked))
        path.append(f"H{left + _across(seconds):.1f}V{y:.1f}")
    path.append(f"H{left + _PANEL}")
    return "".join(path)


def _across(seconds: float) -> float:
    held = min(_MOST_S, max(_LEAST_S, seconds))
    return _PANEL * log10(held / _LEAST_S) / log10(_MOST_S / _LEAST_S)


def _legend(outcomes: Sequence[Outcome]) -> list[str]:
    parts, y = [], _TOP + _TALL + 44
    for index, outcome in enumerate(outcomes):
        x = _LEFT + (index % 2) * (_PANEL + _GAP)
        line = y + (index // 2) * 20
        parts.append(
            f'<path d="M{x} {line - 4}h28" stroke-width="2" stroke="{_COLOURS[index % len(_COLOURS)]}" '
            f'stroke-dasharray="{_DASHES[index % len(_DASHES)]}"/>'
        )
        parts.append(
            f'<text x="{x + 36}" y="{line}">{escape(outcome.name)}: {escape(outcome.sessions)}</text>'
        )
    return parts
