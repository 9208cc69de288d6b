"""The page in a real Chromium: paste rows, sort, open a card, change a field and watch the probability move."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import stays
from support.serving import rows_of

from tefm.model.estimator import TEFM
from tefm.serve.protect import Keys
from tefm.serve.routes import create_app
from tefm.serve.served import Served

pytest.importorskip("selenium", reason="the page is tested with selenium, which is not installed")
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys as Press
from selenium.webdriver.support.ui import Select, WebDriverWait

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (BROWSER and DRIVER), reason="there is no chromium with chromedriver on this machine"),
]
DESKTOP, PHONE = (1280, 860), (390, 844)
KEY = "0123456789abcdef"
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage"
)


@pytest.fixture(scope="module")
def addresses(fitted: TEFM) -> Iterator[dict[str, str]]:
    """An open server, and one with a key."""
    import socket
    import time

    import uvicorn

    servers, addresses = [], {}
    for name, keys in (("open", Keys([])), ("locked", Keys([KEY]))):
        listening = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(create_app([Served("stays", fitted)], keys=keys), log_config=None))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        servers.append((server, thread))
        addresses[name] = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    while not all(server.started for server, _ in servers):
        time.sleep(0.05)
    yield addresses
    for server, thread in servers:
        server.should_exit = True
        thread.join(30)


class Page:
    """A browser on the page."""

    def __init__(self, folder: Path) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = str(BROWSER)
        for flag in (*FLAGS.split(), f"--user-data-dir={folder}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options, webdriver.ChromeService(str(DRIVER)))

    def open(self, address: str, size: tuple[int, int]) -> None:
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.driver.get(address)

    def __getitem__(self, selector: str) -> Any:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def until(self, condition: Any, seconds: float = 60) -> Any:
        return WebDriverWait(self.driver, seconds, 0.05, ignored_exceptions=[Exception]).until(lambda _: condition())

    def predict(self, text: str) -> None:
        self.until(lambda: self["#rows"].is_displayed())
        self.driver.execute_script("document.getElementById('rows').value = arguments[0]", text)
        self["#go"].click()
        self.until(lambda: self["#results"].is_displayed())

    def column(self, number: int) -> list[str]:
        return [cell.text for cell in self.all(f"#list tbody tr > :nth-child({number})")]

    def complaints(self) -> list[Any]:
        """What the browser's console says: a blocked resource or an error in a script would be here."""
        return [entry for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    page = Page(tmp_path_factory.mktemp("chromium"))
    yield page
    page.driver.quit()


def percent(text: str) -> float:
    return float(text.strip("<>%"))


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_from_rows_to_what_if(page: Page, addresses: dict[str, str], fitted: TEFM, size: tuple[int, int]) -> None:
    rows = stays(20, seed=3).drop("died")
    right = fitted.predict_table(rows)
    page.open(addresses["open"], size)
    page.predict(rows.write_csv())
    # the predictions are those of the model, the most probable first
    shown = {row.text: percent(p) for row, p in zip(page.all("#list tbody th"), page.column(3), strict=True)}
    expected = dict(zip(right["patient"], 100 * right["p(yes)"], strict=True))
    assert shown == pytest.approx(expected, abs=0.06)
    assert list(shown.values()) == sorted(shown.values(), reverse=True)
    # sorted by another column, and the other way round
    page["#list th.id button"].click()
    assert page["#list th.id"].get_attribute("aria-sort") == "ascending"
    assert page.column(1) == [f"p{i}" for i in range(20)]
    page["#list th.id button"].click()
    assert page.column(1) == [f"p{i}" for i in reversed(range(20))]
    # a card with evidence
    died = right.filter(right["predicted"] == "yes")["patient"][0]
    page[f"#list [data-id={died}]"].click()
    page.until(lambda: page.all(".tefm-card article"))
    assert page["#predicted"].text == "yes"
    assert page["#why"].text.startswith(("Settled", "Contested", "Unsettled", "Default"))
    assert "probability of “yes”" in page["#why"].text
    # what if: without morphine, nobody dies
    before, codes = page["[data-class=yes]"].text, page["#codes ol"].text
    page["#tab-what-if"].click()
    drugs = page["#fields [name=drugs]"]
    assert "morphine" in drugs.get_attribute("value")
    drugs.clear()
    drugs.send_keys("insulin")
    page.until(lambda: page["#predicted"].text == "no")
    assert percent(page["[data-class=yes]"].text) < percent(before) - 10
    assert page["#codes ol"].text != codes and page.all(".code.changed")
    assert "Probability of yes" in page["#live"].get_attribute("textContent")
    assert "→ insulin" in page["#changes"].text
    changed = {**next(row for row in reversed(rows.to_dicts()) if row["patient"] == died), "drugs": "insulin"}
    others = [row for row in rows.to_dicts() if row["patient"] == died and row["day"] != changed["day"]]
    again = fitted.predict_proba([*others, changed])[0, 1]
    assert percent(page["[data-class=yes]"].text) == pytest.approx(100 * again, abs=0.06)
    # and back
    page["#reset"].click()
    page.until(lambda: page["[data-class=yes]"].text == before)
    assert page["#codes ol"].text == codes and not page.all(".code.changed")
    # nothing sticks out, and the browser has nothing to complain about
    assert page.driver.execute_script("return document.documentElement.scrollWidth") <= size[0]
    assert page.complaints() == []


def test_the_keyboard_is_enough(page: Page, addresses: dict[str, str]) -> None:
    page.open(addresses["open"], DESKTOP)
    page.until(lambda: page["#rows"].is_displayed())

    def press(*keys: str) -> Any:
        page.driver.switch_to.active_element.send_keys(*keys)
        return page.driver.switch_to.active_element

    page.driver.execute_script("document.getElementById('example').focus()")
    press(Press.ENTER)
    assert page["#rows"].get_attribute("value").startswith("patient,day")
    press(Press.ENTER)  # the focus is on Predict
    page.until(lambda: page["#results"].is_displayed())
    page.driver.execute_script("document.querySelector('#list tbody button').focus()")
    first = page.driver.switch_to.active_element.text
    assert press(Press.ARROW_DOWN).text != first
    press(Press.ENTER)
    page.until(lambda: page.all(".tefm-card article"))
    page.driver.execute_script("document.getElementById('tab-why').focus()")
    assert press(Press.ARROW_RIGHT).get_attribute("id") == "tab-what-if"
    assert page["#what-if"].is_displayed()
    press(Press.ESCAPE)
    assert not page["#detail"].is_displayed()
    for control in page.all("input, select, textarea"):
        labels = page.driver.execute_script("return arguments[0].labels.length", control)
        assert labels, control.get_attribute("id")


def test_messages_are_for_people(page: Page, addresses: dict[str, str]) -> None:
    page.open(addresses["open"], PHONE)
    page.until(lambda: page["#rows"].is_displayed())
    for text, words in (
        ("", "no rows yet"),
        ("patient,day\n", "only a header"),
        ('[{"patient": ', "not valid JSON"),
        ("patient,day,age,ward,drugs\np,2024-01-01,old,heart,\n", "Column “age”, value “old”"),
        ("patient,day\np,2024-01-01\n", "columns are missing"),
    ):
        page.driver.execute_script("document.getElementById('rows').value = arguments[0]", text)
        page["#go"].click()
        page.until(lambda words=words: words in page["#alert"].text)


#: A field of the entity, as a schema with `static:` has one, without a fit.
AGE_IS_STATIC = """
const asked = window.fetch;
window.fetch = async (path, options) => {
  const reply = await asked(path, options);
  if (path !== "v1/models") return reply;
  const body = await reply.json();
  for (const column of body.data[0].columns) column.static = column.name === "age";
  return new Response(JSON.stringify(body), {headers: {"Content-Type": "application/json"}});
};
"""


def test_a_static_field_takes_one_edit(page: Page, addresses: dict[str, str]) -> None:
    script = page.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": AGE_IS_STATIC})
    page.open(addresses["open"], DESKTOP)
    page.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)
    page.predict("patient,day,age,ward,drugs\np,2024-01-01,50,heart,\np,2024-01-02,50,attic,\n")
    page.until(lambda: "1 with values unlike those of training" in page["#tally"].text)
    page["#list tbody button"].click()
    page.until(lambda: page.all(".tefm-card article"))  # the fields are drawn again for it
    assert "'attic' is not among the values" in page[".notice"].text and "Predicted: " in page["#decision"].text
    page["#tab-what-if"].click()
    page.until(lambda: page["#fields [name=age]"].is_displayed())
    page["#fields [name=age]"].clear()
    page["#fields [name=age]"].send_keys("80")
    page.until(lambda: [row.text for row in page.all("#changes li")] == ["age: 50 → 80 Undo"])
    page.driver.execute_script("document.querySelector('#record').selectedIndex = 0")
    page.driver.execute_script("document.querySelector('#record').dispatchEvent(new Event('change'))")
    page.until(lambda: page["#fields [name=age]"].get_attribute("value") == "80")
    page["#changes button"].click()
    page.until(lambda: page["#fields [name=age]"].get_attribute("value") == "50" and not page.all("#changes li"))


def test_headers_break_between_words_only(page: Page, addresses: dict[str, str]) -> None:
    page.open(addresses["open"], DESKTOP)
    page.predict(stays(3, seed=3).drop("died").write_csv())
    page["#list tbody button"].click()
    lines = (
        "const range = document.createRange(); range.selectNodeContents(arguments[0]); return range.getClientRects()"
    )
    for header in page.all("#list thead button"):
        assert page.driver.execute_script(f"{lines}.length", header) <= len(header.text.split()) + 1, header.text


def test_values_are_never_html(page: Page, addresses: dict[str, str]) -> None:
    page.open(addresses["open"], DESKTOP)
    name = "<img src=x onerror=document.title='owned'>"
    rows = [{**rows_of(1)[0], "patient": name, "ward": name}]
    page.until(lambda: page["#rows"].is_displayed())
    page.driver.execute_script("document.getElementById('rows').value = JSON.stringify(arguments[0])", rows)
    page["#go"].click()
    page.until(lambda: page.all("#list tbody button"))
    assert page["#list tbody button"].text == name
    page["#list tbody button"].click()
    page.until(lambda: page.all(".tefm-card article"))
    page["#tab-what-if"].click()
    assert Select(page["#fields [name=ward]"]).first_selected_option.text == name
    assert page.driver.title == "stays · tefm" and not page.all("main img")


def test_a_key_is_asked_for(page: Page, addresses: dict[str, str]) -> None:
    page.open(addresses["locked"], DESKTOP)
    page.until(lambda: page["#key"].is_displayed())
    assert not page["#main"].is_displayed()
    page["#key"].send_keys("wrong", Press.ENTER)
    page.until(lambda: "missing or wrong" in page["#alert"].text)
    page["#key"].clear()
    page["#key"].send_keys(KEY, Press.ENTER)
    page.until(lambda: page["#main"].is_displayed())
    assert not page["#key-form"].is_displayed()
