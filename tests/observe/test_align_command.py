# SPDX-License-Identifier: Apache-2.0
"""``torch-fl align``: exit status, tables, JSON, and the page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.helpers import command, output
from tests.observe import browser

MODEL = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.dense, self.act = nn.LayerNorm(16), nn.Linear(16, 12), nn.GELU()

    def forward(self, x):
        return self.act(self.dense(self.norm(x)))

def make():
    return Model(), torch.randn(4, 16)

def bare():
    return Model()

def number():
    return 3
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "small.py"
    path.write_text(MODEL)
    return path


@pytest.fixture(scope="module")
def pages(model: Path) -> dict[str, Path]:
    """Pages and data of the model on right kernels, and on one that leaves the end of odd rows out."""
    found = {}
    for name, status, fault in (("right", 0, {}), ("wrong", 1, {"SIMCHIP_WRONG": "odd-tail"})):
        page, data = model.with_name(f"{name}.html"), model.with_name(f"{name}.json")
        text = output("align", f"{model}:make", "-o", page, "--json", data, status=status, **fault)
        model.with_name(f"{name}.txt").write_text(text)
        found[name] = page
    return found


def test_the_last_line_says_what_diverges_first(pages: dict[str, Path]) -> None:
    right, wrong = (pages[name].with_suffix(".txt").read_text().splitlines() for name in ("right", "wrong"))
    assert right[-1].startswith("aligned: ")
    assert wrong[-1].startswith("first diverging: aten::gelu float32 in act (GELU) (only with size 11 instead of 12)")
    assert any("aten::native_layer_norm" in line and "noise" in line for line in right)
    assert any(re.match(r" dense +Linear +backward", line) for line in right)


def test_json_has_what_the_table_has(pages: dict[str, Path]) -> None:
    wrong = json.loads(pages["wrong"].with_suffix(".json").read_text())
    assert wrong["first_op"]["op"] == "aten::gelu"
    assert wrong["first_op"]["place"]["layer"] == "act"
    assert wrong["first_op"]["probed"]["max_rel"] > 0.1
    assert wrong["precision"] is not None


def test_json_on_stdout_is_json_alone(model: Path) -> None:
    text = output("align", f"{model}:make", "--json", "-", "--no-probe", "--no-backward")
    data = json.loads(text)
    assert data["backward"] is False
    assert data["ok"] is True


def test_inputs_can_be_given(model: Path) -> None:
    data = json.loads(output("align", f"{model}:bare", "--inputs", "3x16", "--json", "-", "--no-probe"))
    assert data["ops"][0]["case"].startswith("native_layer_norm(float32[3, 16]")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["{model}:bare"], "without inputs"),
        (["{model}:number"], "expected a torch.nn.Module"),
        (["{model}:bare", "--inputs", "3x15"], "small.py:bare: the model, on the CPU, raised RuntimeError: "),
        (["{model}:bare", "--inputs", "3x15"], "small.py:11)"),  # the line of forward()
        (["{model}:make", "--device", "fl:9"], "no device 'fl:9'; devices: fl:0, fl:1"),
        (["{model}:bare", "--inputs", "3,16"], "expected sizes joined by x"),
        (["no_such_module_of_anybody:make"], "no_such_module_of_anybody"),
        (["{model}:make", "--json", "-", "-o", "-"], "-: expected the name of a file; standard output is /dev/stdout"),
    ],
)
def test_mistakes_in_the_command_end_with_status_2(model: Path, words: list[str], text: str) -> None:
    result = command("align", *(word.format(model=model) for word in words))
    assert result.returncode == 2, result.stderr
    assert text in result.stderr
    assert "Traceback" not in result.stderr


# ---- The page ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browsing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Browser]:
    if reason := browser.missing():
        pytest.skip(reason)
    with browser.chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


OVERFLOWING = """
const limit = document.documentElement.clientWidth + 1;
return [...document.querySelectorAll("body *")].filter((e) => !e.closest(".scroll") &&
  e.getBoundingClientRect().right > limit).map((e) => e.className + ": " + e.textContent.slice(0, 40));
"""


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_fits_and_is_quiet(browsing: browser.Browser, pages: dict[str, Path], width: int, dark: bool) -> None:
    browsing.open(pages["wrong"], width, dark)
    assert browsing.run(OVERFLOWING) == []
    assert browsing.logs() == []
    assert browsing.requests() == []


def test_the_page_shows_each_operators_accuracy(browsing: browser.Browser, pages: dict[str, Path]) -> None:
    browsing.open(pages["wrong"])
    assert "First diverging: aten::gelu" in browsing.text(".verdict")
    data = json.loads(pages["wrong"].with_suffix(".json").read_text())
    lines = "return document.querySelectorAll('#accuracy .line:not(.axis-line)').length"
    assert browsing.run(lines) == len(data["ops"])
    bad = "return [...document.querySelectorAll('#accuracy .line')].filter((e) => e.querySelector('.mark.bad'))"
    assert browsing.run(f"{bad}.map((e) => e.querySelector('code').textContent)") == ["gelu"]
    x = "return document.querySelector(arguments[0]).getBoundingClientRect().x"
    wrong = "#accuracy .line:has(.mark.bad) "
    assert browsing.run(x, wrong + ".mark.bad") > browsing.run(x, wrong + ".mark.chip") + 100  # 1e-1 beside 1e-7
    assert "no unit" in browsing.text("#accuracy .axis-title")


def test_light_and_dark_can_be_chosen(browsing: browser.Browser, pages: dict[str, Path]) -> None:
    browsing.open(pages["right"])
    ground = "return getComputedStyle(document.body).backgroundColor"
    light = browsing.run(ground)
    browsing.click("#theme")
    assert browsing.run(ground) != light
    assert "Aligned." in browsing.text(".verdict")
