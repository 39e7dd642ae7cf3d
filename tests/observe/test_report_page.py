# SPDX-License-Identifier: Apache-2.0
"""The report's page in a browser: rendered, sorted, filtered, switched, narrow, printed, and without a network."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.observe import browser, samples
from torch_fl.observe.pages import breakable
from torch_fl.observe.report import heat, page
from torch_fl.observe.report.data import Report

SAMPLES = {
    "full": samples.sample(),
    "hostile": samples.sample(hostile=True),
    "good": samples.sample(host=False),
    "nothing": samples.nothing(),
    "huge": samples.sample(layers=400, groups=3000),
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    for name, report in SAMPLES.items():
        (folder / f"{name}.html").write_text(page.render(report), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in SAMPLES}


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Browser]:
    if browser.missing():
        pytest.skip(browser.missing())
    with browser.chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


# ---- In the browser ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width, dark", [(1280, False), (360, True)])
@pytest.mark.parametrize("name", SAMPLES)
def test_a_page_fits_says_nothing_to_the_console_and_asks_for_nothing(
    chromium: browser.Browser, pages: dict[str, Path], tmp_path: Path, name: str, width: int, dark: bool
) -> None:
    chromium.open(pages[name], width, dark)
    assert chromium.logs() == []
    assert chromium.requests() == []
    assert chromium.run("return document.documentElement.scrollWidth") <= width
    assert chromium.run("return document.title") == f"{SAMPLES[name].title} on the chip"
    assert len(chromium.screenshot(tmp_path / "page.png")) > 10_000


def test_charts_are_drawn_with_units(chromium: browser.Browser, pages: dict[str, Path]) -> None:
    chromium.open(pages["full"])
    for chart, unit in (("timeline", "ms since the start"), ("devices", "share of time"), ("memory", "MiB")):
        assert unit in chromium.run("return document.getElementById(arguments[0]).textContent", f"chart-{chart}")
    bars = "return document.querySelectorAll('#chart-routes .bars .point').length"
    assert chromium.run(bars) == 2 * len(SAMPLES["full"].routes)
    assert "100%" in chromium.run("return document.getElementById('chart-routes').textContent")


def column(chromium: browser.Browser, index: int) -> list[str]:
    """The visible cells of a column of the table."""
    script = """
        const rows = [...document.querySelectorAll('#groups tbody tr')].filter((row) => !row.hidden);
        return rows.map((row) => row.cells[arguments[0]].dataset.value ?? row.cells[arguments[0]].innerText.trim());
    """
    return list(chromium.run(script, index))


def test_the_table_is_sorted_by_numbers_and_by_words(chromium: browser.Browser, pages: dict[str, Path]) -> None:
    chromium.open(pages["full"])
    costs = [int(value) for value in column(chromium, 2)]
    assert costs == sorted(costs, reverse=True)
    chromium.click("#groups th:nth-child(3) button")
    assert [int(value) for value in column(chromium, 2)] == sorted(costs)
    chromium.click("#groups th:nth-child(1) button")
    names = column(chromium, 0)
    assert names == sorted(names)
    assert len(names) == len(costs)
    sorts = "return [...document.querySelectorAll('#groups th')].map((head) => head.getAttribute('aria-sort'))"
    assert chromium.run(sorts) == ["ascending"] + [None] * 11


def test_the_table_is_filtered_by_words_and_route(chromium: browser.Browser, pages: dict[str, Path]) -> None:
    chromium.open(pages["full"])
    everything = len(column(chromium, 0))
    chromium.type("#filter", "INDEX_select layers.3")
    assert column(chromium, 0) == ["aten::index_select"]
    assert chromium.text("#found") == f"1 of {everything}"
    chromium.type("#filter", "no such thing")
    assert column(chromium, 0) == []
    chromium.type("#filter", "a")
    chromium.run(
        "const r = document.getElementById('route'); r.value = 'portable'; r.dispatchEvent(new Event('change'))"
    )
    assert column(chromium, 0) == ["aten::gelu"]


def test_the_theme_follows_the_reader_until_it_is_switched(chromium: browser.Browser, pages: dict[str, Path]) -> None:
    background = "return getComputedStyle(document.body).backgroundColor"
    cell = "return getComputedStyle(document.querySelector('td.hot')).backgroundColor"
    axis = "return getComputedStyle(document.querySelector('#chart-memory .xtick text')).fill"
    chromium.open(pages["full"], dark=False)
    light = [chromium.run(script) for script in (background, cell, axis)]
    chromium.prefer(dark=True)
    chromium.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    dark = [chromium.run(script) for script in (background, cell, axis)]
    assert all(a != b for a, b in zip(light, dark))
    chromium.click("#theme")
    assert [chromium.run(script) for script in (background, cell, axis)] == light
    assert chromium.text("#theme") == "Dark"


def test_the_heat_map_is_switched_between_layers_and_lines(chromium: browser.Browser, pages: dict[str, Path]) -> None:
    chromium.open(pages["full"])
    assert "encoder.layers.8.self_attention" in chromium.text("#map-layer")
    shown = "return getComputedStyle(document.getElementById(arguments[0])).display !== 'none'"
    assert [chromium.run(shown, f"map-{name}") for name in ("layer", "line")] == [True, False]
    chromium.click("[data-map=line]")
    assert [chromium.run(shown, f"map-{name}") for name in ("layer", "line")] == [False, True]
    assert "train_transformer.py:149 (encode_batch)" in chromium.text("#map-line")


@pytest.mark.parametrize("name, width", [("full", 1280), ("full", 718), ("full", 360), ("hostile", 360)])
def test_no_label_is_cut(chromium: browser.Browser, pages: dict[str, Path], name: str, width: int) -> None:
    """No text is wider or higher than the box that it is in; axes' texts are inside their charts."""
    chromium.open(pages[name], width)
    cut = """
        const which = '.tile *, .candidate *, .heat th, .heat th span, .heat td, .lead, h1, dd, dt';
        const cut = (e) => e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1;
        return [...document.querySelectorAll(which)]
            .filter((e) => e.offsetParent && getComputedStyle(e).display !== 'inline' && cut(e))
            .map((e) => e.outerHTML.slice(0, 200));
    """
    assert chromium.run(cut) == []
    outside = """
        return [...document.querySelectorAll('.chart')].flatMap((chart) => {
            const box = chart.getBoundingClientRect();
            return [...chart.querySelectorAll('text')].filter((text) => {
                const inner = text.getBoundingClientRect();
                const across = inner.left < box.left - 1 || inner.right > box.right + 1;
                return inner.width && (across || inner.bottom > box.bottom + 1);
            }).map((text) => chart.id + ': ' + text.textContent);
        });
    """
    assert chromium.run(outside) == []
    covered = """
        return [...document.querySelectorAll('.chart')].filter((chart) => {
            const legend = chart.querySelector('.legend')?.getBoundingClientRect();
            return legend && legend.bottom > chart.querySelector('.nsewdrag').getBoundingClientRect().top + 2;
        }).map((chart) => chart.id);
    """
    assert chromium.run(covered) == []


def test_hostile_names_are_text(chromium: browser.Browser, pages: dict[str, Path]) -> None:
    chromium.open(pages["hostile"])
    assert chromium.text("h1") == samples.HOSTILE
    assert chromium.text(".candidate .op") == samples.HOSTILE
    assert chromium.run("return document.querySelectorAll('img').length") == 0
    assert "49" not in chromium.text("h1")


def test_what_is_said_when_nothing_left_the_chip(chromium: browser.Browser, pages: dict[str, Path]) -> None:
    chromium.open(pages["good"])
    assert "Every operator ran on the chip." in chromium.text(".lead")
    assert "Nothing left the chip." in chromium.text("#first")
    assert chromium.run("return document.getElementById('heat')") is None
    chromium.open(pages["nothing"])
    assert "No operator was called on a device." in chromium.text(".lead")
    assert "There is nothing to show." in chromium.text("#first")


def test_a_huge_run_makes_a_bounded_page(chromium: browser.Browser, pages: dict[str, Path]) -> None:
    chromium.open(pages["huge"])
    rows = chromium.run("return document.querySelectorAll('#map-layer tbody tr').length")
    assert rows == heat.PLACES + 1
    assert heat.OTHERS in chromium.text("#map-layer")


def test_it_prints_light_and_whole(chromium: browser.Browser, pages: dict[str, Path]) -> None:
    chromium.open(pages["full"], dark=True)
    widths = "return [...document.querySelectorAll('.chart svg.main-svg')].map((e) => e.getBoundingClientRect().width)"
    chromium.run(f"window.seen = []; addEventListener('beforeprint', () => seen.push((() => {{ {widths} }})()))")
    assert chromium.pdf().startswith(b"%PDF")
    ((*printed,),) = chromium.run("return window.seen")
    assert printed
    assert max(printed) < 700
    chromium.wait(f"return Math.min(...(() => {{ {widths} }})()) > 700")
    chromium.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert chromium.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert chromium.run("return getComputedStyle(document.querySelector('.scroll.tall')).maxHeight") == "none"
        assert chromium.run("return getComputedStyle(document.querySelector('.tools')).display") == "none"
        chromium.narrow(718)
        assert chromium.run("return document.getElementById('groups').getBoundingClientRect().right") <= 718
    finally:
        chromium.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


# ---- Without one ---------------------------------------------------------------------------------------------------


def test_the_page_names_no_server() -> None:
    html = page.render(SAMPLES["full"])
    own = re.sub(r"<script>/\*\*\n\* plotly.*?</script>", "", html, flags=re.DOTALL)
    assert len(own) < len(html) / 5
    assert not re.search(r"https?:|src=|@import|url\(", own)
    assert "default-src 'none'" in own


def test_data_survive_json() -> None:
    for report in SAMPLES.values():
        again = Report.from_json(report.to_json())
        assert again.to_json() == report.to_json()
        assert again.candidates == report.candidates
    with pytest.raises(ValueError, match="expected a report of version 1, found version 7"):
        Report.from_json('{"version": 7}')
    with pytest.raises(ValueError, match="found version None"):
        Report.from_json("[]")


def test_data_in_a_script_cannot_end_it() -> None:
    for hostile in (samples.HOSTILE, "<!--<script>", "]]>\u2028\u2029"):
        text = page.script_json({"name": hostile})
        assert not set("<>&\u2028\u2029") & set(text)


def test_sums_of_a_heat_map() -> None:
    rows = [samples.row(f"aten::op{i}", "host", 1_000_000 * (i + 1), layer=f"layer{i % 3}") for i in range(40)]
    found = heat.heat_map(rows, lambda row: row.layer)
    assert sum(found.totals) == sum(row.cost_ns for row in rows)
    assert found.operators[0] == "aten::op39"
    assert len(found.operators) == heat.OPERATORS + 1
    assert found.operators[-1] == heat.OTHERS
    assert max(cell.heat for line in found.cells for cell in line if cell) == 1.0


def test_colours_are_told_apart_and_read() -> None:
    """Along the scale lightness only rises, so that it is read without seeing colours; text on it has contrast."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    found = [luminance(heat.colour(i / 50)) for i in range(51)]
    assert all(a < b for a, b in itertools.pairwise(found))
    for i in range(51):
        ground, text = found[i], 0.0 if heat.ink(i / 50) == "#000" else 1.0
        assert (max(ground, text) + 0.05) / (min(ground, text) + 0.05) >= 4.5


@pytest.mark.parametrize(
    "shown, expected",
    [
        (page.time(0), "0 ms"),
        (page.time(900), "900 ns"),
        (page.time(12_345), "12.3 µs"),
        (page.time(1_234_000_000), "1.23 s"),
        (page.time(5_000_000_000_000), "5,000 s"),
        (page.ms(12), "<0.001"),
        (page.size(1536), "1.50 KiB"),
        (page.percent(1), "100\u00a0%"),
        (page.percent(0.99999), "99.9\u00a0%"),
        (page.percent(0), "0\u00a0%"),
        (page.percent(0.00001), "<0.1\u00a0%"),
        (page.percent(0.25), "25.0\u00a0%"),
        (breakable("a/b_c.<d>"), "a/<wbr>b_<wbr>c.&lt;d&gt;"),
    ],
)
def test_numbers_and_names_for_people(shown: str, expected: str) -> None:
    assert shown == expected
