"""The page at /: one file that asks nobody else for anything, and what it shows in a real browser."""

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from served import ENDLESS, MODEL, RANDOM, Served, SlowRounds, is_idle, listening, serving

import hermitcrab.server
from hermitcrab.server.options import ServerOptions
from hermitcrab.server.text.chat import ChatText

SOURCE = (Path(hermitcrab.server.__file__).parent / "page.html").read_text(encoding="utf-8")

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WAIT_MS = 20_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium; it has an event loop on this thread, so `Served.send` cannot be used beside it."""
    program = next((found for name in CHROMIUM_NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip(f"the page needs a browser to be tested, and none of {', '.join(CHROMIUM_NAMES)} is here")
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=program, args=CHROMIUM_FLAGS)
        yield launched
        launched.close()


@dataclass
class Visit:
    """A page that is open, what it asked for, and what went wrong in it."""

    page: Page
    url: str
    asked: list[str]
    faults: list[str]

    def send(self, content: str, *, copies: int = 1, longest: int | None = None) -> None:
        self.page.get_by_label("chats at once").select_option(str(copies))
        self.page.get_by_label("longest reply").fill("" if longest is None else str(longest))
        self.page.get_by_label("Your message").fill(content)
        self.page.get_by_label("Your message").press("Enter")

    def talk(self, number: int) -> Any:
        return self.page.get_by_role("article", name=f"chat {number}", exact=True)


Open = Callable[..., Visit]


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Opens a server's page in a fresh browser context; a fault in its script fails the test."""
    visits, contexts = [], []

    def visit(port: int, **options: Any) -> Visit:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        made = Visit(page, f"http://127.0.0.1:{port}/", [], [])
        visits.append(made)
        page.on("request", lambda request: made.asked.append(request.url))
        page.on("pageerror", lambda error: made.faults.append(str(error)))
        page.goto(made.url)
        return made

    yield visit
    for context in contexts:
        context.close()
    assert [fault for made in visits for fault in made.faults] == []


@pytest.fixture
def answered(text: ChatText) -> Iterator[tuple[Served, int]]:
    """A server that answers at once, and its port."""
    with serving(text, session_rows=(1024, 128, 256, 128), grow_tokens=16) as served:
        served.replies["think"] = "it is a greeting\n</think>\n\nHello 👋 <b>there</b>!"
        with listening(served.app) as port:
            yield served, port


@pytest.fixture
def slow(text: ChatText) -> Iterator[tuple[Served, int]]:
    """A server that takes its time, and its port: one session that is never full, and two small ones."""
    with (
        serving(text, session_rows=(60_000, 64, 64), grow_tokens=16, on_call=SlowRounds(0.005)) as served,
        listening(served.app) as port,
    ):
        yield served, port


def test_the_page_names_no_other_host_and_loads_no_other_file() -> None:
    links = re.findall(r"""(?:src|href)=["']?([^"'\s>]+)""", SOURCE)
    assert all(link.startswith(("data:", "#")) for link in links)
    assert "@import" not in SOURCE
    # the names of the drawing's XML vocabulary are all there is
    assert set(re.findall(r"https?://[\w.]+", SOURCE)) == {"http://www.w3.org"}


def test_the_policy_allows_the_pages_own_script_and_nothing_else(answered: tuple[Served, int]) -> None:
    response = httpx.get(f"http://127.0.0.1:{answered[1]}/")
    policy = response.headers["content-security-policy"]
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy


@pytest.mark.clients
def test_the_browser_asks_this_server_only(answered: tuple[Served, int], open_page: Open) -> None:
    visit = open_page(answered[1])
    expect(visit.page.locator("#state")).to_have_text("serving")
    visit.send("hi")
    expect(visit.talk(1)).to_contain_text("ended by itself")
    assert {url.removeprefix(visit.url) for url in visit.asked if not url.startswith("data:")} == {
        "",
        "v1/status",
        "v1/chat/completions",
    }


@pytest.mark.clients
def test_every_session_is_a_shell_larger_for_more_rows(answered: tuple[Served, int], open_page: Open) -> None:
    page = open_page(answered[1]).page
    shells = page.locator("#shells li")
    expect(shells).to_have_count(4)
    expect(shells).to_contain_text(["free · 128", "free · 128", "free · 256", "free · 1,024"])
    widths = [shell.bounding_box()["width"] for shell in page.locator("#shells svg").all()]  # type: ignore[index]  # all are shown
    assert widths[0] == widths[1] < widths[2] < widths[3]


@pytest.mark.clients
def test_a_reply_streams_in_with_its_thinking_apart_and_dimmed(
    answered: tuple[Served, int], open_page: Open
) -> None:
    visit = open_page(answered[1])
    visit.send("think")
    talk = visit.talk(1)
    expect(talk.locator(".thinking")).to_have_text("it is a greeting")
    # markup in a reply is text
    expect(talk.locator(".answer")).to_have_text("Hello 👋 <b>there</b>!")
    expect(talk.locator(".end")).to_contain_text("0 moves")
    colour = "element => getComputedStyle(element).color"
    assert talk.locator(".thinking").evaluate(colour) != talk.locator(".answer").evaluate(colour)


@pytest.mark.clients
def test_a_chat_goes_on_with_what_was_said(answered: tuple[Served, int], open_page: Open) -> None:
    served, port = answered
    visit = open_page(port)
    visit.send("think")
    expect(visit.talk(1)).to_contain_text("ended by itself")
    visit.page.get_by_label("Go on with chat 1").fill("hi")
    visit.page.get_by_label("Go on with chat 1").press("Enter")
    expect(visit.talk(1).locator(".thinking")).to_have_text(["it is a greeting", "Hello there!"])
    expect(visit.talk(1)).to_contain_text("ended by itself")
    prompt = served.text.text_of(served.lanes.submitted[-1].prompt)
    said, answer, next_said = (
        prompt.index("think\n"),
        prompt.index("<b>there</b>!"),
        prompt.rindex("user\nhi"),
    )
    assert said < answer < next_said


@pytest.mark.clients
def test_chats_share_the_shells_and_what_waits_is_told(slow: tuple[Served, int], open_page: Open) -> None:
    served, port = slow
    visit = open_page(port)
    visit.send(ENDLESS, copies=4)
    waiting = visit.page.locator("#waiting")
    expect(waiting).to_contain_text("chat 4 waits for a free shell")
    expect(visit.page.locator("#shells li.paused")).to_have_count(2)
    expect(waiting).to_contain_text("waits for a larger shell")
    expect(visit.page.locator("#shells li.live")).to_contain_text("tok/s")
    expect(visit.page.locator("#running")).to_have_text("1")
    expect(visit.page.locator("#paused")).to_have_text("2")
    expect(visit.page.locator("#queued")).to_have_text("1")
    assert len({stream.request_id for stream in served.status().streams}) == 4


@pytest.mark.clients
def test_rows_in_use_fill_the_shell_from_within(slow: tuple[Served, int], open_page: Open) -> None:
    visit = open_page(slow[1])
    visit.send(ENDLESS, copies=3)
    shell = visit.page.locator("#shells li.paused").first
    expect(shell).to_be_visible()
    height = "path => path.getBBox().height"
    body, written, read = (shell.locator(f".{part}") for part in ("body", "written", "read"))
    # a paused stream has all but filled its session; its prompt is the inner part
    expect(written).to_have_attribute("d", re.compile("^M"))
    visit.page.wait_for_function(
        """() => {
          const of = (part) => document.querySelector(`#shells li.paused ${part}`).getBBox().height;
          return of(".written") > 0.9 * of(".body");
        }"""
    )
    assert 0 < read.evaluate(height) < written.evaluate(height) <= body.evaluate(height)


@pytest.mark.clients
def test_a_move_walks_from_shell_to_shell_and_is_told(slow: tuple[Served, int], open_page: Open) -> None:
    served, port = slow
    visit = open_page(port)
    visit.send(RANDOM, longest=150)
    visit.page.wait_for_selector(".walker", state="attached")
    expect(visit.page.locator("#events")).to_contain_text(
        re.compile(r"chat 1 moved from 64 to 60,000 rows at \d\d")
    )
    served.wait_until(is_idle)
    expect(visit.page.locator(".walker")).to_have_count(0)
    expect(visit.page.locator("#moves")).to_have_text("1")


@pytest.mark.clients
def test_with_reduced_motion_a_move_is_told_and_nothing_walks(
    slow: tuple[Served, int], open_page: Open
) -> None:
    visit = open_page(slow[1], reduced_motion="reduce")
    visit.page.evaluate(
        "new MutationObserver(() => { window.walked ||= !!document.querySelector('.walker'); })"
        ".observe(document.body, { childList: true })"
    )
    visit.send(RANDOM, longest=150)
    expect(visit.page.locator("#events")).to_contain_text("chat 1 moved")
    assert not visit.page.evaluate("window.walked")


@pytest.mark.clients
def test_moves_between_two_looks_are_not_missed(answered: tuple[Served, int], open_page: Open) -> None:
    visit = open_page(answered[1])
    expect(visit.page.locator("#state")).to_have_text("serving")
    seen = httpx.get(f"{visit.url}v1/status").json()
    moves = [
        {
            "number": number,
            "request_id": f"r{number}",
            "source_slot": 1,
            "target_slot": 0,
            "tokens": 120,
            "age_s": 0,
        }
        for number in (38, 39, 40)
    ]
    visit.page.route(
        "**/v1/status", lambda route: route.fulfill(json={**seen, "moves": 40, "recent_moves": moves})
    )
    lines = visit.page.locator("#events li")
    expect(lines).to_have_count(4)
    expect(lines).to_contain_text(
        ["r40 moved", "r39 moved", "r38 moved", "37 moves were made while nobody looked"]
    )


@pytest.mark.clients
def test_cancel_ends_a_reply_on_the_server(slow: tuple[Served, int], open_page: Open) -> None:
    served, port = slow
    visit = open_page(port)
    visit.send(ENDLESS)
    expect(visit.talk(1).locator(".thinking")).to_contain_text("on and on")
    visit.page.get_by_role("button", name="Cancel chat 1").click()
    expect(visit.talk(1)).to_contain_text("cancelled")
    served.wait_until(is_idle)
    assert served.status().requests_cancelled == 1
    visit.page.get_by_role("button", name="Remove chat 1").click()
    expect(visit.talk(1)).to_have_count(0)


@pytest.mark.clients
def test_the_keyboard_is_enough(slow: tuple[Served, int], open_page: Open) -> None:
    served, port = slow
    visit = open_page(port)
    keyboard = visit.page.keyboard
    keyboard.press("Tab")
    expect(visit.page.get_by_text("Skip to the chat")).to_be_focused()
    keyboard.press("Enter")
    keyboard.press("Tab")
    visit.page.get_by_label("Your message").focus()
    keyboard.type(ENDLESS)
    keyboard.press("Enter")
    expect(visit.talk(1).locator(".thinking")).to_contain_text("on and on")
    while not visit.page.evaluate("document.activeElement.matches('.talk button')"):
        keyboard.press("Tab")
    keyboard.press("Escape")
    expect(visit.talk(1)).to_contain_text("cancelled")
    served.wait_until(is_idle)


@pytest.mark.clients
def test_no_more_chats_run_than_a_browser_connects(slow: tuple[Served, int], open_page: Open) -> None:
    visit = open_page(slow[1])
    visit.send(ENDLESS, copies=5)
    expect(visit.page.locator("#new button")).to_be_disabled()
    # the picture goes on beside them
    expect(visit.page.locator("#queued")).to_have_text("2")
    visit.page.get_by_role("button", name="Cancel chat 5").click()
    expect(visit.page.locator("#new button")).to_be_enabled()
    expect(visit.page.locator("#queued")).to_have_text("1")


@pytest.mark.clients
def test_a_refusal_is_shown_in_the_servers_words(answered: tuple[Served, int], open_page: Open) -> None:
    visit = open_page(answered[1])
    visit.send("x " * 2000)
    expect(visit.talk(1).get_by_role("alert")).to_contain_text("maximum context length is 1020 tokens")
    expect(visit.talk(1)).to_contain_text("failed")


@pytest.mark.clients
def test_with_a_key_set_the_page_asks_for_it(text: ChatText, open_page: Open) -> None:
    options = ServerOptions(MODEL, api_key="secret")
    with serving(text, options=options) as served, listening(served.app) as port:
        visit = open_page(port)
        dialog = visit.page.get_by_role("dialog")
        expect(dialog).to_be_visible()
        visit.page.locator("#key").fill("wrong")
        visit.page.locator("#key").press("Enter")
        expect(dialog).to_contain_text("That key is not the one.")
        visit.page.locator("#key").fill("secret")
        visit.page.get_by_role("button", name="Go on").click()
        expect(visit.page.locator("#shells li")).to_have_count(4)
        visit.send("hi")
        expect(visit.talk(1)).to_contain_text("ended by itself")


@pytest.mark.clients
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(slow: tuple[Served, int], open_page: Open, scheme: str) -> None:
    visit = open_page(slow[1], viewport={"width": 360, "height": 740}, color_scheme=scheme)
    visit.send(ENDLESS, copies=3)
    expect(visit.page.locator("#shells li.paused")).to_have_count(2)
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 360


def luminance(colour: str) -> float:
    """The relative luminance of a CSS `rgb()` colour, by WCAG 2."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.clients
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_can_be_read_in_light_and_dark(
    answered: tuple[Served, int], open_page: Open, scheme: str
) -> None:
    visit = open_page(answered[1], color_scheme=scheme)
    visit.send("think")
    expect(visit.talk(1).locator(".answer")).to_be_visible()
    colour = "(element, name) => getComputedStyle(element)[name]"
    panel = luminance(visit.page.locator(".panel").first.evaluate(colour, "backgroundColor"))
    assert (panel > 0.5) == (scheme == "light")
    for part in (".answer", ".thinking", ".end", "h1", "#state", ".key", ".free .used"):
        ink = luminance(visit.page.locator(part).first.evaluate(colour, "color"))
        bright, dim = max(ink, panel), min(ink, panel)
        assert (bright + 0.05) / (dim + 0.05) >= 4.5, part


@pytest.mark.clients
def test_a_server_that_is_gone_is_told(text: ChatText, open_page: Open) -> None:
    with serving(text) as served:
        with listening(served.app) as port:
            visit = open_page(port)
            expect(visit.page.locator("#state")).to_have_text("serving")
        expect(visit.page.locator("#state")).to_have_text("no answer")


@pytest.mark.clients
def test_a_server_that_ends_is_told(answered: tuple[Served, int], open_page: Open) -> None:
    served, port = answered
    visit = open_page(port)
    expect(visit.page.locator("#state")).to_have_text("serving")
    served.host.close(drain_s=0.0)
    expect(visit.page.locator("#state")).to_have_text("shutting down")
