"""The pictures in docs/img: taken by this test, of a night from a seed. They are renewed only where somebody asks for it.

`./dev screenshots` does; otherwise they are taken and thrown away, so that what they show is known to work.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import environment
from tests.support.browser import Browser
from tests.support.browser_page import Page
from tests.support.environment import ROOT, Isolated
from tests.web.browser import live_ui as desks
from tests.web.browser.live_ui import Desk, Morning, served

VARIABLE = "OUTLAST_TEST_SCREENSHOTS"
IMAGES = ROOT / "docs" / "img"
BYTES_MAX = 150_000
# What is pictured: whose page it is of, its path, and how it is looked at.
PICTURES: dict[str, tuple[str, str, dict[str, int | bool]]] = {
    "overview": ("", "/", {"width": 1280, "height": 780}),
    "overview-phone": ("", "/", {"width": 390, "height": 680, "mobile": True, "dark": True}),
    "run": ("216", "", {"width": 1280, "height": 960, "dark": True}),
    "effects": ("payout-07", "/effects", {"width": 1280, "height": 640}),
    "budget": ("218", "/budget", {"width": 1280, "height": 960}),
    "saves": ("", "/saves", {"width": 1280, "height": 800}),
    "charts": ("", "/charts", {"width": 1280, "height": 960}),
}
BEFORE = """\
from decimal import Decimal


def total(lines):
    amount = Decimal(0)
    for price, count in lines:
        amount += Decimal(price) * count
    return round(amount, 2)
"""
AFTER = """\
from decimal import ROUND_HALF_UP, Decimal

CENT = Decimal("0.01")


def total(lines):
    amount = sum((Decimal(price) * count for price, count in lines), Decimal(0))
    return amount.quantize(CENT, ROUND_HALF_UP)
"""
TESTED = """\
from cart import total


def test_half_a_cent_is_rounded_up():
    assert str(total([("0.125", 1)])) == "0.13"
"""
AGENT = """
outlast step "read the module" -- true
outlast step "fix the rounding" -- cp ../after.py cart.py
outlast step "extend the tests" -- cp ../test_cart.py test_cart.py
"""


def take(page: Page, name: str, folder: Path) -> None:
    """One picture, small enough to lie in the repository."""
    page.wait_for("document.readyState === 'complete'")
    page.wait_for("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
    page.screenshot(folder / f"{name}.png")
    size = (folder / f"{name}.png").stat().st_size
    assert 5_000 < size <= BYTES_MAX, f"{name} has {size:,} bytes"
    if os.environ.get(VARIABLE):
        IMAGES.mkdir(exist_ok=True)
        (IMAGES / f"{name}.png").write_bytes((folder / f"{name}.png").read_bytes())


@pytest.fixture(scope="module")
def tidy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Morning]:
    """A morning without an agent that writes nonsense."""
    folder = tmp_path_factory.mktemp("tidy")
    with desks.morning(folder, environment.isolate(folder), hostile=False) as made:
        yield made


@pytest.fixture
def shop(state: Isolated) -> Iterator[Desk]:
    """A desk at a short address, which stands in the picture."""
    with tempfile.TemporaryDirectory(prefix="shop-") as folder, Desk(Path(folder), state) as made:
        yield made


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_taken(browser: Browser, tidy: Morning, tmp_path: Path, name: str) -> None:
    task, path, look = PICTURES[name]
    with browser.page() as page:
        page.emulate(still=True, zone="Europe/Vienna", **look)  # type: ignore[arg-type]
        page.goto(tidy.run_url(task, path) if task else tidy.url + path)
        page.reload()  # now the server knows the zone
        take(page, name, tmp_path)


def test_a_picture_of_a_diff_is_taken(browser: Browser, shop: Desk, tmp_path: Path) -> None:
    for name, text in (("after.py", AFTER), ("test_cart.py", TESTED), ("agent.sh", AGENT)):
        (shop.folder / name).write_text(text)
    (shop.work / "cart.py").write_text(BEFORE)
    subprocess.run(
        ["sh", "-c", "git add -A && git commit -qm cart"], cwd=shop.work, env=shop.environ(), check=True
    )
    words = ["run", "--task", "240", "--goal", "Round prices half-up", "--", "sh", "../agent.sh"]
    subprocess.run(
        [sys.executable, "-P", "-m", "outlast", *words],
        cwd=shop.work,
        env=shop.environ(),
        check=True,
        capture_output=True,
    )
    head = shop.head("240")
    with served(shop.root, shop.isolated) as ui, browser.page() as page:
        page.emulate(width=1280, height=860, still=True, zone="Europe/Vienna")
        page.goto(f"{ui.url}/runs/{head.run}/saves/{head.last_save}?against=head")
        page.reload()
        assert "quantize" in page.text("main")
        take(page, "diff", tmp_path)


def test_every_picture_in_the_docs_is_one_of_these() -> None:
    found = {path.stem for path in IMAGES.glob("*.png")}
    assert found == {*PICTURES, "diff"}
