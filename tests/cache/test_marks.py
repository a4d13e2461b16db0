"""Where a prompt pass stops to keep a state: on the grid, at message starts, from the tokens alone."""

from hypothesis import given
from hypothesis import strategies as st

from hermitcrab.cache.marks import last_mark, planned_marks

START = 1
GRID_ROWS = 64


def prompt_of(*message_tokens: int) -> list[int]:
    """A prompt of messages of so many tokens, each begun by its start token."""
    return [token for count in message_tokens for token in (START, *[7] * (count - 1))]


def marks_of(prompt: list[int], *, gap_rows: int = 0) -> tuple[int, ...]:
    return planned_marks(prompt, start_ids=frozenset({START}), grid_rows=GRID_ROWS, gap_rows=gap_rows)


def test_each_message_start_has_a_mark_at_the_last_point_of_the_grid_before_it() -> None:
    assert marks_of(prompt_of(100, 100, 300, 10)) == (64, 192, 448)


def test_the_last_mark_leaves_at_least_one_row_to_run() -> None:
    assert [last_mark(tokens, grid_rows=GRID_ROWS) for tokens in (1, 64, 65, 128, 129)] == [0, 0, 64, 64, 128]


def test_a_prompt_without_message_starts_has_a_mark_at_its_end_only() -> None:
    assert marks_of([7] * 1000) == (960,)


def test_a_prompt_shorter_than_the_grid_has_none() -> None:
    assert marks_of(prompt_of(20, 20)) == ()


def test_message_starts_nearer_than_the_gap_share_a_mark() -> None:
    assert marks_of(prompt_of(*[70] * 10, 700), gap_rows=256) == (256, 512, 640, 1344)


def test_the_last_message_start_has_a_mark_however_near_it_is() -> None:
    assert marks_of(prompt_of(300, 100, 100), gap_rows=256) == (256, 384, 448)


@given(
    messages=st.lists(st.integers(1, 300), min_size=1, max_size=12),
    added=st.lists(st.integers(1, 300), min_size=1, max_size=3),
    grid_rows=st.integers(1, 64),
    gap_rows=st.integers(0, 300),
)
def test_marks_lie_on_the_grid_within_the_prompt_and_stand_when_a_turn_is_added(
    messages: list[int], added: list[int], grid_rows: int, gap_rows: int
) -> None:
    starts = frozenset({START})
    prompt, longer = prompt_of(*messages), prompt_of(*messages, *added)
    marks = planned_marks(prompt, start_ids=starts, grid_rows=grid_rows, gap_rows=gap_rows)
    later = planned_marks(longer, start_ids=starts, grid_rows=grid_rows, gap_rows=gap_rows)
    assert list(marks) == sorted(set(marks))
    assert all(0 < mark < len(prompt) and mark % grid_rows == 0 for mark in marks)
    # all but the two that are always there
    assert set(marks[:-2]) <= set(later)
