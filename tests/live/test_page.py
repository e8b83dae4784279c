"""The operator's page, in Chromium: what it shows is what `tidings status` says, and it goes on by itself."""

import asyncio
import os
import re
import signal
import subprocess
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.live.conftest import RUN, Place, all_up, free_ports

from tidings.live import Network, connect_blocking, read_network

if TYPE_CHECKING:
    from playwright.sync_api import Page


def with_pages(place: Place, *names: str) -> tuple[Network, dict[str, str]]:
    """A network whose brokers all serve the page, and where."""
    network = place.write(*names)
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    text = network.path.read_text("utf-8")
    for name, port in ports.items():
        text = text.replace(f'name = "{name}"\n', f'name = "{name}"\nmetrics = "127.0.0.1:{port}"\n')
    network.path.write_text(text, "utf-8")
    return read_network(network.path), {name: f"http://127.0.0.1:{port}/" for name, port in ports.items()}


def rows(page: "Page", table: str) -> dict[str, list[str]]:
    """The cells of a table by the first of each row."""
    found = page.eval_on_selector_all(
        f"#{table} tbody tr", "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    )
    return {first: rest for first, *rest in found}


def status(network: Network) -> dict[str, Any]:
    said = subprocess.run([*RUN, "status", str(network.path), "--json"], capture_output=True, check=True, timeout=60)
    return dict(msgspec.json.decode(said.stdout))


def percent(share: float | None) -> str:
    return "-" if share is None else f"{share * 100:g} %"


def wait_for_all(network: Network) -> None:
    """In a thread: where Playwright is, no other event loop may run."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, all_up(network)).result(90)


@pytest.mark.browser
def test_the_page_shows_what_status_says_and_who_is_down(place: Place, page: "Page") -> None:
    network, addresses = with_pages(place, "b1", "b2", "b3")
    for name in network.brokers:
        place.start("broker", str(network.path), "--name", name)
    wait_for_all(network)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    with (
        connect_blocking(place.address("b1"), name="desk") as publisher,
        connect_blocking(place.address("b3"), name="far reader") as far,
        connect_blocking(place.address("b2"), name="quick reader") as quick,
    ):
        events = far.subscribe("n >= 0", name="all")
        quick.subscribe("n < 0", name="none")
        page.goto(addresses["b1"])
        for n in range(25):
            publisher.publish({"n": n})
        for _ in range(25):
            assert events.get(timeout_s=20.0) is not None
        page.wait_for_function(
            "() => [...document.querySelectorAll('#subscribers tr')].some(row => row.cells[6].textContent === '25')"
        )
        said = status(network)
        shown = rows(page, "brokers")
        assert list(shown) == ["b1", "b2", "b3"]
        for broker in said["brokers"]:
            state, _, clients, queued, stored, recent, whole, sent, dropped = shown[broker["name"]]
            assert (state, clients) == ("up", f"{broker['clients_connected']} of {broker['clients']}")
            assert (queued, stored) == (f"{broker['queued']:,}", f"{broker['stored']:,}")
            deliveries = broker["deliveries"]
            assert recent == percent(deliveries["last_minute"]["on_time_reliability"])
            assert whole == percent(deliveries["on_time_reliability"])
            assert (sent, dropped) == (f"{broker['transfers']:,}", "0")
        # A link that falls silent on a busy machine has what was under way again.
        assert said["brokers"][0]["transfers"] >= 25
        subscribers = rows(page, "subscribers")
        assert list(subscribers) == list(said["subscribers"]) == ["far reader/all", "quick reader/none"]
        far_row, quick_row = subscribers.values()
        assert re.fullmatch(r"last (minute|\d+ s)", far_row.pop(3))  # how long there has been an account
        assert far_row[:-2] == ["b3", "connected", "100 %", "25", "25", "0", "0", "0", "0"]
        assert all(re.fullmatch(r"[\d.,]+ ms", cell) for cell in far_row[-2:])
        assert quick_row == ["b2", "connected", "-", "since start", *["0"] * 6, "-", "-"]
        assert {link: cells[0] for link, cells in rows(page, "links").items()} == {"b1 – b2": "up", "b2 – b3": "up"}
        assert page.locator("#summary").text_content() == "OK: 3 brokers, 2 links; 2 subscriptions"
        assert page.locator("#moves-section").is_hidden()
        publisher.move("b2")
        page.wait_for_function("() => document.querySelector('#moves-summary').textContent.includes('1 done')")
        assert page.locator("#moves-section").is_visible()
        assert rows(page, "moves")["desk"][:4] == ["b1", "b2", "done", "client"]
        check_the_map_shows_what_the_page_was_told(page)
        check_the_page_fits_a_phone(page)
        check_the_keyboard_leads_from_the_map_to_the_table(page)
    if folder := os.environ.get("TIDINGS_SCREENSHOTS"):
        page.screenshot(path=f"{folder}/page-up.png", full_page=True)

    place.processes[2].kill()
    place.processes[2].wait()
    page.wait_for_function("() => document.querySelector('#summary').textContent.startsWith('down: b3')")
    assert rows(page, "brokers")["b3"][0].startswith("down: 127.0.0.1")
    assert rows(page, "links")["b2 – b3"][0] == "down"
    assert page.locator("#said").text_content() == "b3 is down"
    assert page.locator("#map a[data-broker=b3] circle.broker").get_attribute("class") == "broker down"
    os.kill(place.processes[1].pid, signal.SIGSTOP)
    page.wait_for_function("() => document.querySelector('#summary').textContent.startsWith('down: b2, b3')")
    assert "did not answer within 1 s" in rows(page, "brokers")["b2"][0]
    assert set(rows(page, "links")) == {"b1 – b2", "b2 – b3"}, "links of who is down are known by the file"
    if folder:
        page.emulate_media(color_scheme="dark")
        page.screenshot(path=f"{folder}/page-down.png", full_page=True)
    os.kill(place.processes[1].pid, signal.SIGCONT)
    page.wait_for_function("() => document.querySelector('#summary').textContent.startsWith('down: b3;')")
    assert all(url.startswith((addresses["b1"], "data:")) for url in asked), "nothing but the broker itself is asked"


def check_the_map_shows_what_the_page_was_told(page: "Page") -> None:
    """The very answer that the page was given, against what it drew from it."""
    with page.expect_response(re.compile("status.json")) as waited:
        pass
    brokers = waited.value.json()["brokers"]
    assert set(waited.value.json()) == {"brokers", "subscribers"}
    before = page.evaluate("() => document.body.dataset.at")
    page.wait_for_function("before => document.body.dataset.at !== before", arg=before, timeout=5_000)
    for broker in brokers:
        node = page.locator(f"#map a[data-broker={broker['name']}]")
        label = node.get_attribute("aria-label")
        assert label is not None
        assert f"{broker['queued']:,} queued, on time " in label
        shown = node.locator("text.busy").text_content()
        assert re.fullmatch(r"\d+%", shown or "")
        assert f"{shown} busy" in label
    assert page.locator("#map line.edge.up").count() == 2
    assert page.locator("#map circle.on-time-2").count() == 1


def check_the_page_fits_a_phone(page: "Page") -> None:
    """Tables scroll by themselves, with the first column in place; the page does not."""
    wide = page.viewport_size
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    table = page.locator("[aria-labelledby=subscribers-heading].scroll")
    first = "box => { box.scrollLeft = 200; return box.querySelector('tbody th').getBoundingClientRect().left }"
    assert table.evaluate("box => box.scrollWidth > box.clientWidth")
    assert table.evaluate(first) >= 0
    if folder := os.environ.get("TIDINGS_SCREENSHOTS"):
        page.screenshot(path=f"{folder}/page-phone.png", full_page=True)
    if wide is not None:
        page.set_viewport_size(wide)


@pytest.mark.browser
def test_what_became_of_events_is_shown_worst_first(place: Place, page: "Page") -> None:
    network, addresses = with_pages(place, "a")
    place.start("broker", str(network.path))
    wait_for_all(network)
    with connect_blocking(place.address("a"), name="desk") as desk:
        desk.subscribe("n >= 0", name="quick")
        strict = {"max_delay_s": 1e-9}
        desk.subscribe("n >= 0", name="strict", **strict)
        late = desk.subscribe("n >= 0", name="tardy", late_s=60.0, **strict)
        page.goto(addresses["a"])
        for n in range(10):
            desk.publish({"n": n})
            assert late.get(timeout_s=20.0) is not None
        page.wait_for_function(
            "() => [...document.querySelectorAll('#subscribers tr')].some(row => row.cells[7].textContent === '10')"
        )
        found = rows(page, "subscribers")
        assert list(found) == ["desk/strict", "desk/tardy", "desk/quick"]
        shares = {name: (cells[2], cells[4:8]) for name, cells in found.items()}
        by = found["desk/strict"][7].removeprefix("10 by ")
        assert by in ("a", "client")
        assert shares == {
            "desk/strict": ("0 %", ["10", "0", "0", f"10 by {by}"]),
            "desk/tardy": ("0 %", ["10", "0", "10", "0"]),
            "desk/quick": ("100 %", ["10", "10", "0", "0"]),
        }
        assert page.locator("#subscribers td.on-time-0").count() == page.locator("#map circle.on-time-0").count() == 2
        assert page.locator("#subscribers td.on-time-2").count() == page.locator("#map circle.on-time-2").count() == 1


def check_the_keyboard_leads_from_the_map_to_the_table(page: "Page") -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.className") == "skip"
    page.keyboard.press("Tab")
    focused = "() => document.activeElement.dataset.broker"
    assert page.evaluate(focused) == "b1"
    page.keyboard.press("Tab")
    page.wait_for_timeout(1_500)
    assert page.evaluate(focused) == "b2", "the focus stays where it is while the page goes on"
    page.keyboard.press("Enter")
    assert page.evaluate("() => document.querySelector('tr:target').cells[0].textContent") == "b2"


@pytest.mark.browser
def test_a_subscriber_whose_broker_is_down_is_shown(place: Place, page: "Page") -> None:
    network, addresses = with_pages(place, "b1", "b2")
    for name in network.brokers:
        place.start("broker", str(network.path), "--name", name)
    wait_for_all(network)
    with connect_blocking(place.address("b2"), name="far reader") as far:
        far.subscribe("n >= 0", name="all")
        page.goto(addresses["b1"])
        page.wait_for_function("() => document.querySelector('#summary').textContent.endsWith('; 1 subscription')")
        place.processes[1].kill()
        place.processes[1].wait()
        page.wait_for_function("() => document.querySelector('#summary').textContent.startsWith('down: b2')")
        assert rows(page, "subscribers") == {"far reader/all": ["b2", "down: its broker", *["-"] * 10]}
        summary = "down: b2; 1 subscription, 1 affected"
        assert page.locator("#summary").text_content() == summary


@pytest.mark.browser
def test_names_are_text_and_never_markup(place: Place, page: "Page") -> None:
    network, addresses = with_pages(place, "a")
    place.start("up", str(network.path))
    wait_for_all(network)
    with connect_blocking(place.address("a"), name="<img src=x onerror=alert(1)>") as client:
        client.subscribe("n > 0", name="<b>all</b>")
        page.goto(addresses["a"])
        page.wait_for_selector("#subscribers tbody tr")
        assert list(rows(page, "subscribers")) == ["<img src=x onerror=alert(1)>/<b>all</b>"]
        assert page.locator("img").count() == page.locator("b").count() == 0


def test_who_may_ask_for_what(place: Place) -> None:
    network, addresses = with_pages(place, "a")
    place.start("broker", str(network.path))
    wait_for_all(network)

    def ask(path: str, **headers: str) -> tuple[int, str]:
        request = urllib.request.Request(addresses["a"] + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.headers["Content-Security-Policy"] or ""
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    for path in ("", "page.css", "page.js", "status.json"):
        code, policy = ask(path)
        assert code == 200
        assert "default-src 'none'" in policy
    assert ask("metrics")[0] == 200
    assert ask("other")[0] == 404
    code, why = ask("status.json", Host="evil.example:80")
    assert code == 403
    assert "ask for the page at 127.0.0.1" in why
