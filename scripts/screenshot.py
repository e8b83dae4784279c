"""A picture of the first screen of a page: python scripts/screenshot.py report.html docs/images/report.png"""

import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

WIDTH, HEIGHT = 1200, 780
COLOURS = 128
"""Pages have few colours: a palette keeps the file small."""


def take(page: str, picture: Path) -> None:
    """Show the page in the system's Chromium and write what is seen first."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    address = page if "://" in page else Path(page).resolve().as_uri()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        shown = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        shown.goto(address)
        shown.screenshot(path=picture)
        browser.close()
    with Image.open(picture) as image:
        image.convert("RGB").quantize(COLOURS).save(picture, optimize=True)


if __name__ == "__main__":
    take(sys.argv[1], Path(sys.argv[2]))
