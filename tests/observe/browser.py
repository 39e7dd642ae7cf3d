# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium that looks at pages: what is on them, and what they did."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


def missing() -> str:
    """Return why no page can be looked at, or nothing."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is not installed"
    return "" if CHROMIUM and DRIVER else "Chromium or chromedriver is not installed"


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """Start a browser whose profile is in a fresh folder."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield Browser(driver)
    finally:
        driver.quit()


class Browser:
    """What tests ask of a page."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, page: Path, width: int = 1280, dark: bool = False) -> None:
        """Load a page at a width, for a reader who prefers light or dark."""
        self.narrow(width)
        self.prefer(dark)
        self.logs()
        self.driver.get_log("performance")
        self.driver.get(page.as_uri())
        self.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")

    def narrow(self, width: int) -> None:
        """Give the page another width."""
        self._command(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500
        )

    def prefer(self, dark: bool) -> None:
        """Prefer dark pages, or light ones."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._command("Emulation.setEmulatedMedia", features=[scheme])

    def run(self, script: str, *arguments: Any) -> Any:
        """Return what JavaScript returns."""
        return self.driver.execute_script(script, *arguments)

    def wait(self, script: str, seconds: float = 10) -> None:
        """Wait until JavaScript returns something true."""
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, seconds).until(lambda _: self.run(script))

    def text(self, selector: str) -> str:
        return str(self.run("return document.querySelector(arguments[0]).innerText", selector))

    def click(self, selector: str) -> None:
        from selenium.webdriver.common.by import By

        element = self.driver.find_element(By.CSS_SELECTOR, selector)
        self.run("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()

    def type(self, selector: str, text: str) -> None:
        from selenium.webdriver.common.by import By

        field = self.driver.find_element(By.CSS_SELECTOR, selector)
        field.clear()
        field.send_keys(text)

    def logs(self) -> list[str]:
        """Return what the console said since last time."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Return the addresses that were asked for since the page was opened, the page itself and data left out."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        return [url for url in sent if not url.startswith(("file:", "data:", "blob:"))]

    def screenshot(self, path: Path) -> bytes:
        """Write a picture of the whole page, and return it."""
        size = self.run("return [document.documentElement.clientWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}
        taken = self._command("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        picture = base64.b64decode(taken["data"])
        path.write_bytes(picture)
        return picture

    def pdf(self) -> bytes:
        """Return the page as it is printed."""
        return base64.b64decode(self._command("Page.printToPDF", printBackground=True)["data"])

    def _command(self, name: str, **parameters: Any) -> Any:
        return self.driver.execute_cdp_cmd(name, parameters)
