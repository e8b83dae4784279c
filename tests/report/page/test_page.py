"""The page in a real browser: it opens from a file, asks for nothing else, and does what it says."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.report.conftest import HOSTILE_BROKER, HOSTILE_SUBSCRIBER

from tidings.placement import Change, Expected, MadeFrom, Move, PlacementPlan, PlanAim
from tidings.report import read_report, render_report, write_report

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

SECTIONS = ["in-short", "worst", "overlay", "waterfall", "changed", "placed", "schemed", "compared", "ordered"]
EXPECTED = Expected(
    messages_per_s=Change(now=400.0, then=90.0),
    delay_ms=Change(now=30.0, then=10.0),
    busiest=Change(now=0.5, then=0.2),
    on_time=Change(now=0.6, then=0.9),
)


def plan_of(*moves: tuple[str, str, str]) -> PlacementPlan:
    return PlacementPlan(
        made_from=MadeFrom(traces=["t"], from_ns=0, until_ns=1, events=1, deliveries=1),
        aim=PlanAim(objective="delay", weight=100.0, hysteresis=0.0),
        moves=[
            Move(client="publisher", name=name, origin=one, target=other, benefit=1.5, expected=EXPECTED)
            for name, one, other in moves
        ],
        stay={"publisher": 1},
        expected=EXPECTED,
    )


def better(run: Path, by: float) -> dict[str, float]:
    found = read_report(run).subscriptions
    return {each.name: min(1.0, each.reliability + by) for each in found if each.reliability is not None}


@pytest.fixture(scope="module")
def file(quick: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The quickstart with everything that a report can have, but failures."""
    place = tmp_path_factory.mktemp("page") / "report.html"
    changes = [
        {"name": "deadline first", "description": "who has least time", "reliability": better(quick, 0.1)},
        {"name": "all", "reliability": better(quick, 0.3)},
    ]
    write_report(
        read_report(quick, plan=plan_of(("exchange-1", "Warsaw", "Lodz")), changes=changes, title="Quotes"), place
    )
    return place


@pytest.fixture
def opened(page: "Page", file: Path) -> Iterator["Page"]:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    yield page
    assert asked == [file.as_uri()]


def test_every_section_is_there_with_headings_in_order(opened: "Page") -> None:
    assert opened.locator("html").get_attribute("lang") == "en"
    assert opened.title() == "Quotes – Tidings report"
    assert [each.get_attribute("id") for each in opened.locator("h2").all()] == SECTIONS
    levels = [int(level) for level in opened.eval_on_selector_all("h1, h2, h3", "all => all.map(h => h.tagName[1])")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    links = opened.eval_on_selector_all("nav a", "all => all.map(a => a.getAttribute('href'))")
    assert links == [f"#{name}" for name in SECTIONS]
    assert (
        "tidings report DIR --scenario FILE" in opened.locator("section", has=opened.locator("#schemed")).inner_text()
    )


def test_tables_and_pictures_say_what_they_are(opened: "Page") -> None:
    tables = "all => all.every(t => t.caption && [...t.querySelectorAll('thead th')].every(h => h.scope === 'col') && "
    tables += "[...t.tBodies[0].rows].every(r => r.cells[0].scope === 'row'))"
    assert opened.eval_on_selector_all("table", tables)
    named = "all => all.every(s => s.querySelector(':scope > title') && s.querySelector(':scope > desc'))"
    assert opened.eval_on_selector_all("svg", named)
    assert opened.locator("svg").count() >= 5


def test_a_table_is_sorted_by_keyboard(opened: "Page") -> None:
    head = opened.locator("#subscriptions thead th", has_text="matched")
    head.get_by_role("button").focus()
    opened.keyboard.press("Enter")
    keys = opened.eval_on_selector_all("#subscriptions tbody tr", "all => all.map(r => Number(r.cells[3].dataset.key))")
    assert head.get_attribute("aria-sort") == "descending"
    assert keys == sorted(keys, reverse=True)
    assert len(set(keys)) > 10
    opened.keyboard.press("Space")
    assert head.get_attribute("aria-sort") == "ascending"
    keys = opened.eval_on_selector_all("#subscriptions tbody tr", "all => all.map(r => Number(r.cells[3].dataset.key))")
    assert keys == sorted(keys)
    assert opened.locator('#subscriptions th[aria-sort="ascending"]').count() == 1


def test_long_tables_are_short_until_all_is_asked_for(opened: "Page") -> None:
    rows = opened.locator("#subscriptions tbody tr:visible")
    assert rows.count() == 12
    opened.get_by_role("button", name="Show all 117 rows").first.click()
    assert rows.count() == 117


def test_choosing_a_subscription_changes_the_waterfall_and_the_curve(opened: "Page") -> None:
    before = opened.locator("#journey").inner_text(), opened.locator("#chosen-curve").get_attribute("d")
    opened.locator("#subscription").focus()
    opened.locator("#subscription").select_option("archive")
    after = opened.locator("#journey").inner_text(), opened.locator("#chosen-curve").get_attribute("d")
    assert before[0] != after[0]
    assert before[1] != after[1]
    assert "From exchange-" in after[0]
    assert "to archive" in after[0]
    assert "class = 'STOCK'" in after[0]
    opened.locator("#publisher").select_option(index=1)
    assert opened.locator("#journey").inner_text() != after[0]


def test_a_name_in_a_table_chooses_it(opened: "Page") -> None:
    name = opened.locator("#subscriptions tbody .pick").nth(3)
    chosen = name.inner_text()
    name.focus()
    opened.keyboard.press("Enter")
    assert opened.locator("#subscription").input_value() == chosen
    assert opened.locator("#subscriptions tr.is-chosen").inner_text().startswith(chosen)


def test_the_map_tells_figures_and_narrows_tables(opened: "Page") -> None:
    stop = opened.locator("#map .station[tabindex='0']")
    assert stop.count() == 1
    stop.focus()
    first = opened.locator("#details").inner_text()
    assert "busy" in first
    opened.keyboard.press("ArrowLeft")
    assert opened.locator("#details").inner_text() != first
    opened.locator("#map .broker[aria-label^='Lodz']").focus()
    opened.keyboard.press("Enter")
    assert opened.locator("#narrowed").inner_text().startswith("Tables show Lodz only.")
    places = opened.eval_on_selector_all(
        "#subscriptions tbody tr:not(.is-out)", "all => all.map(r => r.cells[1].textContent)"
    )
    assert places
    assert set(places) == {"Lodz"}
    links = opened.locator("#links tbody tr:visible th").all_inner_texts()
    assert links
    assert all("Lodz" in link for link in links)
    opened.get_by_role("button", name="Show everything").click()
    assert opened.locator("#subscriptions tbody tr.is-out").count() == 0


def test_a_link_narrows_to_who_hears_over_it(opened: "Page") -> None:
    opened.locator("#map .link[aria-label^='Gdansk → Kolobrzeg']").focus()
    opened.keyboard.press("Enter")
    places = opened.eval_on_selector_all(
        "#subscriptions tbody tr:not(.is-out)", "all => all.map(r => r.cells[1].textContent)"
    )
    assert set(places) <= {"Kolobrzeg", "Szczecin"}
    opened.keyboard.press("Escape")
    assert opened.locator("#narrowed").is_hidden()


def test_what_each_change_would_bring(opened: "Page") -> None:
    rows = opened.locator("#changes tbody tr").all_inner_texts()
    assert [row.split("\t")[0].strip() for row in rows] == ["now", "deadline first\nwho has least time", "all together"]
    assert "deadline first" in opened.locator("#by-change tbody tr").first.inner_text()


def test_it_opens_with_what_is_wrong_and_what_to_do_first(opened: "Page") -> None:
    first = opened.locator("section").first.inner_text()
    assert "deliveries missed their deadline" in first
    assert first.index("missed their deadline") < first.index("Do this first") < first.index("The worst is")
    assert "Who has least time." in first  # a change that was tried comes before one that is only planned
    assert "Of the changes that were tried, this one gains most." in first
    assert " points)" in first
    assert "Deliveries on time: " in first  # a share of deliveries, and a mean of shares, each by its name
    assert "The mean of all on-time shares is " in first
    opened.set_viewport_size({"width": 1280, "height": 900})
    box = opened.locator(".first").bounding_box()
    assert box is not None
    assert box["y"] + box["height"] < 900  # on the first screen


def test_moves_of_a_change_are_drawn(page: "Page", quick: Path, tmp_path: Path) -> None:
    moves = [{"client": "exchange-2", "origin": "Krakow", "target": "Warsaw"}]
    changes = [{"name": "moving publishers", "reliability": better(quick, 0.1), "moves": moves}]
    report = read_report(quick, changes=changes)
    assert "placement" not in report.missing
    write_report(report, tmp_path / "moves.html")
    page.goto((tmp_path / "moves.html").as_uri())
    assert page.locator("#change-moves-0 .move").count() == 1
    cells = page.locator("#change-moves-0-table tbody tr").inner_text().split("\t")
    assert cells == ["exchange-2", "Krakow", "Warsaw"]


def test_colour_is_lateness(opened: "Page") -> None:
    """A bar and a broker have the colour of their share."""
    steps = "all => all.map(e => [[...e.classList], Number(e.closest('td').dataset.key)])"
    found = opened.eval_on_selector_all("#subscriptions .filled", steps)
    assert len(found) == 117
    for names, share in found:
        assert f"l{sum(share < step for step in (0.99, 0.95, 0.8, 0.5))}" in names
    krakow = opened.locator("#map .broker[aria-label^='Krakow']")
    assert "l0" in (krakow.get_attribute("class") or "").split()


def test_a_plan_before_and_after(opened: "Page") -> None:
    assert "messages that brokers handle" in opened.locator("#plan-0").inner_text()
    assert opened.locator("#moves-0 .move").count() == 1
    assert opened.locator("#move-0 tbody tr").inner_text().split("\t") == [
        "exchange-1", "publisher", "Warsaw", "Lodz", "1.5",
    ]  # fmt: skip


@pytest.mark.parametrize("width", [400, 768, 1280])
def test_nothing_scrolls_sideways(opened: "Page", width: int) -> None:
    opened.set_viewport_size({"width": width, "height": 900})
    assert opened.evaluate("document.documentElement.scrollWidth") == width
    wide = "all => all.filter(f => f.scrollWidth > f.clientWidth + 1).map(f => f.querySelector('table').id)"
    assert opened.eval_on_selector_all(".frame", wide) == []


CONTRAST = """() => {
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => { const f = v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
    return .2126 * f(r) + .7152 * f(g) + .0722 * f(b); };
  const ground = parse(getComputedStyle(document.body).backgroundColor);
  let worst = [99, ""];
  for (const each of document.querySelectorAll("h1,h2,h3,p,a,th,td,button,dt,dd,li,code,text,figcaption,caption")) {
    if (!each.textContent.trim() || !each.getClientRects().length || each.closest("#narrowed, .skip")) continue;
    const style = getComputedStyle(each);
    const colour = parse(each.namespaceURI.endsWith("svg") ? style.fill : style.color);
    const row = each.closest("tr.is-chosen");
    const behind = row ? parse(getComputedStyle(row).backgroundColor) : ground;
    const [a, b] = [light(colour), light(behind)].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    if (ratio < worst[0]) worst = [ratio, each.outerHTML.slice(0, 80)];
  }
  return worst;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(opened: "Page", scheme: Any) -> None:
    opened.emulate_media(color_scheme=scheme)
    ratio, where = opened.evaluate(CONTRAST)
    assert ratio >= 4.5, where
    grounds = {"light": "rgb(253, 253, 251)", "dark": "rgb(20, 24, 28)"}
    assert opened.evaluate("getComputedStyle(document.body).backgroundColor") == grounds[scheme]


def test_focus_is_seen(opened: "Page") -> None:
    for selector in (".sort", ".pick", "nav a", "#subscription", ".more:visible"):
        opened.keyboard.press("Tab")  # so that the browser takes what follows for the keyboard's
        opened.locator(selector).first.focus()
        style = opened.locator(selector).first.evaluate("each => getComputedStyle(each).outlineStyle")
        assert style == "solid", selector


def test_it_prints(opened: "Page") -> None:
    pdf = opened.pdf(format="A4")
    assert pdf.startswith(b"%PDF")
    opened.emulate_media(media="print")
    assert not opened.locator("nav").is_visible()
    assert opened.locator("#map").is_visible()
    assert opened.locator("#journey table").is_visible()


def test_names_that_are_markup_stay_text(page: "Page", star: Path, tmp_path: Path) -> None:
    place = tmp_path / "star.html"
    report = read_report(star, title="</title><script>alert(3)</script>")
    write_report(report, place)
    page.on("dialog", lambda dialog: pytest.fail(f"the page ran {dialog.message}"))
    page.goto(place.as_uri())
    assert page.locator("script").count() == 2
    assert page.locator("img").count() == 0
    assert page.locator("h1").inner_text() == "</title><script>alert(3)</script>"
    assert HOSTILE_BROKER in page.locator("#brokers").inner_text()
    page.locator("#subscription").select_option(HOSTILE_SUBSCRIBER)
    assert HOSTILE_SUBSCRIBER in page.locator("#journey").inner_text()
    compared = page.locator("section", has=page.locator("#compared")).inner_text()
    assert "Outages are not included" in compared
    assert "inside the measured 95 % interval." in compared
    assert "Not modelled: the strategy of links, the routes and the ordering at receivers" in compared
    assert page.locator("#schemes tbody tr").count() == 4
    text = render_report(report)
    assert "<script>alert" not in text
    assert "<img" not in text


def test_it_is_readable_without_a_script(chromium: "Browser", file: Path) -> None:
    context = chromium.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto(file.as_uri())
    assert plain.locator("#subscriptions tbody tr:visible").count() == 117
    assert "This part needs JavaScript" in plain.locator("#journey").inner_text()
    context.close()
