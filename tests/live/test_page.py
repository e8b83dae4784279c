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
from tests.live.conftest import RUN, Place, all_up

from tidings.live import Network, connect_blocking, read_network
from tidings.live.page._application import READERS_MAX
from tidings.rehearsal._ports import free_ports

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


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
    return "-" if share is None else f"{share * 100:.1f} %"


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
            "() => [...document.querySelectorAll('#subscribers tr')].some(row => row.cells[7].textContent === '25')"
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
        assert re.fullmatch(r"last (minute|\d+ s)", far_row.pop(4))  # how long there has been an account
        assert far_row[:-2] == ["b3", "connected", "-", "100.0 %", "25", "25", "0", "0", "0", "0", "0"]
        assert all(re.fullmatch(r"[\d.,]+ ms", cell) for cell in far_row[-2:])
        assert quick_row == ["b2", "connected", "-", "-", "since start", *["0"] * 7, "-", "-"]
        assert {link: cells[0] for link, cells in rows(page, "links").items()} == {"b1 – b2": "up", "b2 – b3": "up"}
        verdict = "OK: 3 brokers, 2 links, 2 subscriptions, 100.0 % on time in the last minute"
        assert page.locator("#verdict").text_content() == said["verdict"]["line"] == verdict
        assert re.fullmatch(r"updated \d\d:\d\d:\d\d", page.locator("#updated").text_content() or "")
        assert page.locator("#empty").is_hidden()
        assert page.locator("#troubles-section").is_hidden()
        assert page.locator("#moves-section").is_hidden()
        publisher.move("b2")
        page.wait_for_function("() => document.querySelector('#moves-summary').textContent.includes('1 done')")
        assert page.locator("#moves-section").is_visible()
        assert rows(page, "moves")["desk"][:4] == ["b1", "b2", "done", "client"]
        check_the_keyboard_leads_from_the_map_to_the_table(page)
        check_the_map_shows_what_the_page_was_told(page)
        check_the_page_fits_a_phone(page)
    if folder := os.environ.get("TIDINGS_SCREENSHOTS"):
        page.screenshot(path=f"{folder}/page-up.png", full_page=True)

    place.processes[2].kill()
    place.processes[2].wait()
    page.wait_for_function("() => document.querySelector('#verdict').textContent.startsWith('down: broker b3 is down')")
    assert rows(page, "brokers")["b3"][0].startswith("down: 127.0.0.1")
    assert rows(page, "links")["b2 – b3"][0] == "down"
    assert page.locator("#troubles li.critical h3").text_content() == "criticalbroker b3 is down"
    assert page.locator("#troubles li.critical code").text_content() == f"tidings broker {network.path} --name b3"
    assert page.locator("#map a[data-broker=b3] circle.broker").get_attribute("class") == "broker down"
    os.kill(place.processes[1].pid, signal.SIGSTOP)
    page.wait_for_function("() => document.querySelectorAll('#troubles li.critical').length === 2")
    assert "did not answer within 1 s" in rows(page, "brokers")["b2"][0]
    assert set(rows(page, "links")) == {"b1 – b2", "b2 – b3"}, "links of who is down are known by the file"
    if folder:
        page.emulate_media(color_scheme="dark")
        page.screenshot(path=f"{folder}/page-down.png", full_page=True)
    os.kill(place.processes[1].pid, signal.SIGCONT)
    page.wait_for_function("() => document.querySelectorAll('#troubles li.critical').length === 1")
    assert all(url.startswith((addresses["b1"], "data:")) for url in asked), "nothing but the broker itself is asked"


def check_the_map_shows_what_the_page_was_told(page: "Page") -> None:
    """Each broker has its figures, by any of the ways to colour it."""
    answer = page.evaluate("async () => (await fetch('status.json')).json()")
    assert set(answer) == {"verdict", "history", "trees", "brokers", "subscribers"}
    brokers = answer["brokers"]
    for mode, figure in (("load", r"\d+%"), ("queue", r"[\d,]+"), ("delay", r"-|[\d.,]+"), ("on-time", r"-|[\d.]+%")):
        page.check(f"#modes input[value={mode}]")
        shown = page.locator("#map text.figure").all_text_contents()
        assert len(shown) == len(brokers)
        assert all(re.fullmatch(figure, each) for each in shown)
    for broker in brokers:
        node = page.locator(f"#map a[data-broker={broker['name']}]")
        label = node.get_attribute("aria-label")
        assert label is not None
        assert f"{broker['queued']:,} queued, on time " in label
        assert re.search(r"\d+% busy", label)
    assert page.locator("#map line.edge.up").count() == 2
    assert page.locator("#map circle.on-time-2").count() == 1


def check_the_page_fits_a_phone(page: "Page") -> None:
    """Rows become cards, and nothing is cut off."""
    wide = page.viewport_size
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    for table in ("brokers", "links", "subscribers", "publishers"):
        box = page.locator(f"[aria-labelledby={table}-heading].scroll")
        assert box.evaluate("box => box.scrollWidth <= box.clientWidth")
        edges = "box => [...box.querySelectorAll('td')].every(cell => cell.getBoundingClientRect().right <= 390)"
        assert box.evaluate(edges)
    label = "cell => getComputedStyle(cell, '::before').content"
    assert page.locator("#subscribers tbody td").first.evaluate(label) in ('"at"', "attr(data-label)")
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
            "() => [...document.querySelectorAll('#subscribers tr')].some(row => row.cells[8].textContent === '10')"
        )
        assert tiles(page)["on time, last minute"] == "33.3 %"
        found = rows(page, "subscribers")
        assert list(found) == ["desk/strict", "desk/tardy", "desk/quick"]
        reasons = [cells[2] for cells in found.values()]
        assert reasons == ["deadlines at a are shorter than the delay of events"] * 2 + ["-"]
        shares = {name: (cells[3], cells[5:9]) for name, cells in found.items()}
        by = found["desk/strict"][8].removeprefix("10 by ")
        assert by in ("a", "client")
        assert shares == {
            "desk/strict": ("0.0 %", ["10", "0", "0", f"10 by {by}"]),
            "desk/tardy": ("0.0 %", ["10", "0", "10", "0"]),
            "desk/quick": ("100.0 %", ["10", "10", "0", "0"]),
        }
        assert page.locator("#subscribers td.on-time-0").count() == page.locator("#map circle.on-time-0").count() == 2
        assert page.locator("#subscribers td.on-time-2").count() == page.locator("#map circle.on-time-2").count() == 1
        check_the_trouble_is_explained(page)
        check_search_and_filter(page)
        check_a_subscriber_has_a_view_of_its_own(page)
        check_publishers_and_history(page)


def check_the_trouble_is_explained(page: "Page") -> None:
    assert page.locator("#verdict").text_content() == (
        "late: deadlines at a are shorter than the delay of events, 2 of 3 subscriptions affected"
    )
    trouble = page.locator("#troubles li.warning")
    assert trouble.locator("button.name").all_text_contents() == ["desk/strict", "desk/tardy"]
    assert "2 subscriptions affected" in (trouble.locator(".since").text_content() or "")
    assert (trouble.locator(".why").text_content() or "").startswith("Why: nothing waits and no broker is busy")
    assert (trouble.locator(".remedy").text_content() or "").startswith("What to do: allow more time (max_delay)")


def check_search_and_filter(page: "Page") -> None:
    page.select_option("#filter", "late")
    assert list(rows(page, "subscribers")) == ["desk/strict", "desk/tardy"]
    page.fill("#search", "TARD")
    assert list(rows(page, "subscribers")) == ["desk/tardy"]
    assert page.locator("#found").text_content() == "1 of 3 subscriptions"
    page.select_option("#filter", "away")
    assert rows(page, "subscribers") == {}
    page.fill("#search", "")
    page.select_option("#filter", "all")
    assert len(rows(page, "subscribers")) == 3


def check_a_subscriber_has_a_view_of_its_own(page: "Page") -> None:
    """By keyboard; it stays open and up to date while the page goes on."""
    page.locator("#subscribers button.name").nth(1).focus()
    page.keyboard.press("Enter")
    dialog = page.locator("#subscriber")
    dialog.wait_for(state="visible")
    assert page.locator("#subscriber-name").text_content() == "desk/tardy"
    assert "deadline 0.000001 ms" in (page.locator("#subscriber-state").text_content() or "")
    assert "What to do: allow more time" in (page.locator("#subscriber-reason").text_content() or "")
    assert rows(page, "subscriber-figures")["late"] == ["10", "10"]
    page.wait_for_selector("#subscriber-paths .hop-name")  # with the next row of the history
    assert page.locator("#subscriber-paths .hop-name").all_text_contents() == ["a → desk"]
    before = page.evaluate("() => document.body.dataset.at")
    page.wait_for_function("before => document.body.dataset.at !== before", arg=before)
    assert dialog.is_visible()
    page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")


def check_publishers_and_history(page: "Page") -> None:
    page.wait_for_function("() => document.querySelector('#publishers tbody tr') !== null")
    state, _, published, reached = rows(page, "publishers")["desk"][1:]
    assert (state, published, reached) == ("connected", "10", "3")
    page.wait_for_function("() => document.querySelectorAll('#tiles path[d^=M]').length === 6")
    assert re.fullmatch(r"[\d.,]+ ms|-", tiles(page)["median delay"])


def tiles(page: "Page") -> dict[str, str]:
    labels, values = (page.locator(f"#tiles .{part}").all_text_contents() for part in ("label", "value"))
    return dict(zip(labels, values, strict=True))


def check_the_keyboard_leads_from_the_map_to_the_table(page: "Page") -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.className") == "skip"
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.value") == "on-time"
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
        page.wait_for_selector("#subscribers tbody tr")
        place.processes[1].kill()
        place.processes[1].wait()
        page.wait_for_function("() => document.querySelector('#verdict').textContent.startsWith('down: ')")
        verdict = "down: broker b2 is down, 1 of 1 subscription affected"
        assert page.locator("#verdict").text_content() == verdict
        gone = ["b2", "down: its broker", "broker b2 is down", *["-"] * 11]
        assert rows(page, "subscribers") == {"far reader/all": gone}
        assert rows(page, "brokers")["b2"][0].endswith("; 1 subscription affected")
        assert page.locator("#troubles button.name").all_text_contents() == ["far reader/all"]


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

    for path in ("", "page.css", "page.js", "map.js", "words.js", "status.json", "events"):
        code, policy = ask(path)
        assert code == 200
        assert "default-src 'none'" in policy
    assert ask("metrics")[0] == 200
    assert ask("other")[0] == 404
    for path in ("status.json", "events"):
        code, why = ask(path, Host="evil.example:80")
        assert code == 403
        assert "ask for the page at 127.0.0.1" in why


def test_too_many_readers_are_refused_and_those_who_go_make_room(place: Place) -> None:
    network, addresses = with_pages(place, "a")
    place.start("broker", str(network.path))
    wait_for_all(network)

    def read() -> Any:
        return urllib.request.urlopen(addresses["a"] + "events", timeout=30)

    readers = [read() for _ in range(READERS_MAX)]
    for reader in (readers[0], readers[-1]):
        line = reader.readline()
        assert line.startswith(b'data: {"verdict":{"state":"OK"')
        assert reader.readline() == b"\n"
    with pytest.raises(urllib.error.HTTPError) as refused:
        read()
    refused.value.close()
    assert refused.value.code == 503
    readers.pop().close()
    while True:  # the broker notices when it next pushes
        try:
            readers.append(read())
            break
        except urllib.error.HTTPError as error:
            error.close()
    for reader in readers:
        reader.close()


@pytest.mark.browser
def test_a_page_whose_broker_pushes_nothing_asks_and_says_when_it_hears_nothing(
    place: Place, chromium: "Browser"
) -> None:
    """On a page of its own: here the console may complain that the broker is gone."""
    network, addresses = with_pages(place, "a")
    place.start("broker", str(network.path))
    wait_for_all(network)
    page = chromium.new_page()
    page.route("**/events", lambda route: route.fulfill(status=503, body="too many readers"))
    page.goto(addresses["a"])
    page.wait_for_function("() => document.querySelector('#verdict').textContent.startsWith('OK: 1 broker')")
    assert page.locator("#empty").is_visible(), "and where nothing happens yet it says what to do"
    assert page.locator("#empty-subscribe").text_content() == f'tidings subscribe {place.address("a")} "price > 10"'
    assert page.locator("#subscribers-section").is_hidden()
    before = page.evaluate("() => document.body.dataset.at")
    page.wait_for_function("before => document.body.dataset.at !== before", arg=before)
    place.processes[0].kill()
    place.processes[0].wait()
    page.wait_for_function("() => document.querySelector('#verdict').textContent.includes('what follows is old')")
    assert page.locator("#verdict").get_attribute("class") == "down"
    page.close()


@pytest.mark.browser
def test_a_thousand_subscribers_are_searched_and_updated_in_place(place: Place, page: "Page") -> None:
    """Rows that stay are kept, and a search looks at those that are not shown."""
    network, addresses = with_pages(place, "a")
    place.start("broker", str(network.path))
    wait_for_all(network)
    with connect_blocking(place.address("a"), name="crowd") as crowd:
        crowd.subscribe_many({f"s{n:04}": f"n = {n}" for n in range(1_000)})
        page.goto(addresses["a"])
        page.wait_for_function("() => document.querySelector('#found').textContent === '200 of 1,000 subscriptions'")
        page.evaluate("() => { window.first = document.querySelector('#subscribers tbody tr') }")
        before = page.evaluate("() => document.body.dataset.at")
        page.wait_for_function("before => document.body.dataset.at !== before", arg=before)
        assert page.evaluate("() => window.first === document.querySelector('#subscribers tbody tr')")
        page.fill("#search", "s0987")
        assert list(rows(page, "subscribers")) == ["crowd/s0987"]
