"""Growing: what `room` decides before each round. In the words of docs/sessions.md."""

from collections.abc import Sequence

from hypothesis import assume, given
from hypothesis import strategies as st

from hermitcrab.core.backend import SlotId
from hermitcrab.core.slots import Full, Move, Pause, Room, Session, SlotTable, Standing, Stay, room

WINDOW_ROWS = 4


def decide(
    standing: Standing, session_rows: Sequence[int], *, free: Sequence[int] = (), grow_tokens: int = 8
) -> Room:
    sessions = SlotTable(session_rows).sessions
    return room(
        standing,
        free=[sessions[slot] for slot in free],
        sessions=sessions,
        window_rows=WINDOW_ROWS,
        grow_tokens=grow_tokens,
    )


def at(rows: int, *, capacity_rows: int, end_rows: int = 1000) -> Standing:
    return Standing(
        rows=rows,
        remaining_tokens=end_rows - WINDOW_ROWS - rows - 1,
        end_rows=end_rows,
        capacity_rows=capacity_rows,
    )


def test_a_stream_whose_session_holds_it_stays_at_any_length() -> None:
    decisions = {
        type(decide(at(rows, capacity_rows=64, end_rows=64), (1000, 64), free=(0,))) for rows in range(64)
    }
    assert decisions == {Stay}


def test_a_stream_with_headroom_for_the_round_after_next_stays() -> None:
    assert decide(at(56, capacity_rows=64), (1000, 64), free=(0,)) == Stay()


def test_a_stream_running_out_of_room_moves_to_a_free_larger_session() -> None:
    assert decide(at(57, capacity_rows=64), (1000, 64), free=(0,)) == Move(SlotId(0))


def test_it_moves_to_the_smallest_free_one_that_holds_its_next_growth() -> None:
    # 57 rows, 8 to grow and a window of 4: 69
    assert decide(at(57, capacity_rows=64), (1000, 64, 68, 70, 69), free=(0, 2, 3, 4)) == Move(SlotId(4))


def test_the_end_of_a_short_rest_counts_instead_of_the_growth() -> None:
    standing = at(57, capacity_rows=64, end_rows=65)
    assert decide(standing, (1000, 64, 68, 65), free=(0, 2, 3)) == Move(SlotId(3))


def test_with_no_such_session_free_it_moves_to_the_smallest_larger_one_that_lets_it_go_on() -> None:
    assert decide(at(57, capacity_rows=64), (1000, 64, 66, 65, 67), free=(2, 3, 4)) == Move(SlotId(3))


def test_a_larger_session_in_which_no_further_round_fits_is_not_taken() -> None:
    standing = at(60, capacity_rows=64)
    assert decide(standing, (1000, 64, 67), free=(2,)) == Pause()
    assert decide(standing, (1000, 64, 68), free=(2,)) == Move(SlotId(2))


def test_with_none_free_it_pauses_for_a_larger_session_that_exists() -> None:
    assert decide(at(57, capacity_rows=64), (1000, 64, 64), free=(2,)) == Pause()


def test_a_session_of_its_own_size_is_not_waited_for() -> None:
    assert decide(at(57, capacity_rows=64), (64, 64), free=()) == Full()


def test_without_any_larger_session_it_is_full() -> None:
    assert decide(at(57, capacity_rows=64), (64, 32), free=(1,)) == Full()


def test_a_larger_session_that_would_not_let_it_go_on_is_not_waited_for() -> None:
    assert decide(at(60, capacity_rows=64), (66, 64), free=()) == Full()


SIZES = st.lists(st.integers(9, 80), min_size=1, max_size=6)


@st.composite
def situations(draw: st.DrawFn) -> tuple[Standing, list[int], list[int]]:
    """A stream that admission let in, in a session where a round still fits; and who is free."""
    session_rows = draw(SIZES)
    own = draw(st.integers(0, len(session_rows) - 1))
    end_rows = draw(st.integers(WINDOW_ROWS + 2, max(session_rows)))
    rows = draw(st.integers(1, end_rows - WINDOW_ROWS - 1))
    assume(rows + WINDOW_ROWS <= session_rows[own])
    free = draw(st.sets(st.integers(0, len(session_rows) - 1))) - {own}
    return at(rows, capacity_rows=session_rows[own], end_rows=end_rows), session_rows, sorted(free)


@st.composite
def cramped(draw: st.DrawFn) -> tuple[Standing, list[int], list[int]]:
    """A stream that runs out of room in a session that does not hold it, beside larger and smaller ones."""
    own_rows = draw(st.integers(9, 60))
    larger = draw(st.lists(st.integers(own_rows + 1, own_rows + 80), min_size=1, max_size=4))
    others = [*larger, *draw(st.lists(st.integers(9, own_rows), max_size=3))]
    session_rows = draw(st.permutations([own_rows, *others]))
    rows = own_rows - WINDOW_ROWS - draw(st.integers(0, WINDOW_ROWS - 1))
    least_end = max(own_rows + 1, rows + WINDOW_ROWS + 2)
    end_rows = draw(st.integers(least_end, max(least_end, *larger)))
    assume(end_rows <= max(larger))
    free = draw(st.sets(st.integers(0, len(others)))) - {session_rows.index(own_rows)}
    return at(rows, capacity_rows=own_rows, end_rows=end_rows), session_rows, sorted(free)


@given(situations() | cramped())
def test_a_stream_the_largest_session_holds_is_never_full(
    situation: tuple[Standing, list[int], list[int]],
) -> None:
    standing, session_rows, free = situation
    assert decide(standing, session_rows, free=free) != Full()


@given(situations())
def test_a_stream_in_the_largest_session_always_stays(
    situation: tuple[Standing, list[int], list[int]],
) -> None:
    standing, session_rows, free = situation
    assume(standing.capacity_rows == max(session_rows))
    assert decide(standing, session_rows, free=free) == Stay()


@given(cramped())
def test_a_move_goes_to_a_free_strictly_larger_session_where_it_goes_on(
    situation: tuple[Standing, list[int], list[int]],
) -> None:
    standing, session_rows, free = situation
    decision = decide(standing, session_rows, free=free)
    assume(isinstance(decision, Move))
    assert isinstance(decision, Move)
    assert decision.slot in free
    target_rows = session_rows[decision.slot]
    assert target_rows > standing.capacity_rows
    there = Standing(standing.rows, standing.remaining_tokens, standing.end_rows, target_rows)
    assert decide(there, session_rows) == Stay()


@given(cramped())
def test_a_pause_waits_for_a_busy_strictly_larger_session_and_a_round_still_fits(
    situation: tuple[Standing, list[int], list[int]],
) -> None:
    standing, session_rows, free = situation
    assume(decide(standing, session_rows, free=free) == Pause())
    waited_for = [slot for slot, rows in enumerate(session_rows) if rows > standing.capacity_rows]
    assert waited_for
    assert isinstance(decide(standing, session_rows, free=waited_for), Move)
    assert standing.rows + WINDOW_ROWS <= standing.capacity_rows


@given(cramped())
def test_what_room_decides_depends_on_sizes_and_not_on_the_order_of_slots(
    situation: tuple[Standing, list[int], list[int]],
) -> None:
    standing, session_rows, free = situation
    last = len(session_rows) - 1
    turned = decide(standing, session_rows[::-1], free=[last - slot for slot in free])
    straight = decide(standing, session_rows, free=free)
    assert type(turned) is type(straight)
    if isinstance(turned, Move) and isinstance(straight, Move):
        assert session_rows[::-1][turned.slot] == session_rows[straight.slot]


def test_a_session_knows_its_slot_and_rows() -> None:
    assert SlotTable((40, 20)).sessions == (Session(SlotId(0), 40), Session(SlotId(1), 20))
