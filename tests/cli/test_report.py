# SPDX-License-Identifier: Apache-2.0
"""``torch-fl report``: of scripts and of models, by the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import command
from torch_fl.observe.report.data import CELLS, GROUPS, VERSION, Report

ON_HOST = {"TORCH_FL_ROUTE": "aten::index_select=host"}
MODEL = """
import torch

class Lookup(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(2000, 64))
    def forward(self, index):
        return torch.index_select(self.table, 0, index)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lookup, self.head = Lookup(), torch.nn.Linear(64, 8)
    def forward(self, index):
        return self.head(self.lookup(index))

def build():
    return Net(), torch.randint(0, 2000, (32,))

def alone():
    return Net()

def number():
    return 5

def packed():
    from torch.nn.utils.rnn import pack_sequence
    return torch.nn.GRU(8, 4), (pack_sequence([torch.randn(3, 8), torch.randn(2, 8)]),)

class Known(Net):
    dummy_inputs = {"index": torch.randint(0, 2000, (32,))}

def fails():
    return Net(), torch.tensor([2000000])
"""
TRAINING = (
    MODEL
    + """
import sys
if __name__ == "__main__":
    net, index = build()
    net, index = net.to("fl"), index.to("fl")
    for _ in range(5):
        net(index).sum().backward()
    print("trained", sys.argv[1:])
    if "--fail" in sys.argv:
        raise ValueError("half way")
"""
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("programs")
    (made / "model.py").write_text(MODEL)
    (made / "train.py").write_text(TRAINING)
    (made / "plain.py").write_text("print('no torch')\n")
    (made / "killed.py").write_text("import os, signal, torch\nos.kill(os.getpid(), signal.SIGKILL)\n")
    (made / "cpu.py").write_text("import torch\ntorch.ones(2).numpy()\n")
    return made


def reported(folder: Path, *words: str, status: int = 0, **environment: str) -> tuple[Report, dict[str, Any], Any]:
    """Run the command; return the report, its JSON, and what the command printed."""
    done = command("report", "-o", "r.html", "--json", "r.json", *words, cwd=folder, **environment)
    assert done.returncode == status, done.stderr
    text = (folder / "r.json").read_text()
    html = (folder / "r.html").read_text()
    assert html.startswith("<!DOCTYPE html>")
    assert html.rstrip().endswith("</html>")
    return Report.from_json(text), json.loads(text), done


def test_of_a_script(folder: Path) -> None:
    report, found, done = reported(folder, "train.py", "--", "--lr", "1", **ON_HOST)
    assert done.stdout == "trained ['--lr', '1']\n"
    assert done.stderr.splitlines()[-1] == "r.html"
    assert found["version"] == VERSION
    assert report.title == "train.py --lr 1"
    first = report.candidates[0]
    assert (first.op, first.calls, first.chip) == ("aten::index_select", 5, "sim")
    assert first.gain_ns > 0
    assert first.reason == "the setting route.aten::index_select is host"
    assert first.fix.startswith("A setting sends it there")
    (row,) = report.fallbacks
    assert row.layer == "lookup"
    assert row.site.endswith("train.py:9 (Lookup.forward)")
    assert not row.backward
    assert report.failure == ""


def test_sums_agree(folder: Path) -> None:
    report, _, _ = reported(folder, "train.py", **ON_HOST)
    assert report.calls == sum(share.calls for share in report.routes if share.route not in ("copy", "composite"))
    assert report.host_calls == sum(row.calls for row in report.fallbacks) == 5
    assert report.host_ns == sum(row.cost_ns for row in report.fallbacks)
    assert report.on_chip_calls == pytest.approx(1 - 5 / report.calls)
    assert 0 < report.on_chip_time < 1
    assert sum(share.calls for share in report.routes) == sum(row.calls for row in report.groups)
    assert report.peak_bytes >= 2000 * 64 * 4
    assert max(size for points in report.memory.values() for _, size in points) == report.peak_bytes
    lanes = (report.timeline.launching, report.timeline.host_operators, report.timeline.waiting)
    assert all(0 <= share <= 1 for lane in lanes for share in lane)
    spread = sum(report.timeline.host_operators) * report.timeline.bin_ns
    assert spread == pytest.approx(report.host_ns, rel=0.05)
    facts = {(fact.section, fact.name): fact.value for fact in report.environment}
    assert "sim" in facts["devices", "fl:0"]
    assert facts["settings", "route.aten::index_select"] == "host (from TORCH_FL_ROUTE)"
    assert ("settings", "log_level") not in facts
    assert len(report.groups) <= GROUPS
    assert len(report.fallbacks) <= CELLS


@pytest.mark.parametrize("target", ["model.py:build", "model:build", "model.py:Known"])
def test_of_a_model(folder: Path, target: str) -> None:
    report, _, _ = reported(folder, target, "--steps", "4", **ON_HOST)
    assert report.title == target
    assert (report.candidates[0].op, report.candidates[0].calls) == ("aten::index_select", 4)
    assert {row.layer for row in report.fallbacks} == {"lookup"}
    assert any(row.backward and row.layer == "head" for row in report.groups)


def test_a_packed_sequence_keeps_its_sizes_on_the_host(folder: Path) -> None:
    report, _, _ = reported(folder, "model.py:packed")
    assert not report.failure
    assert report.calls


def test_on_a_device(folder: Path) -> None:
    report, _, _ = reported(folder, "model.py:build", "--device", "fl:1")
    assert {row.device for row in report.groups} == {1}


def test_nothing_left_the_chip(folder: Path) -> None:
    report, _, _ = reported(folder, "model.py:build")
    assert (report.host_calls, report.candidates, report.on_chip_calls) == (0, [], 1.0)
    assert "Nothing left the chip." in (folder / "r.html").read_text()


def test_a_script_that_names_no_device_runs_on_the_preferred_one(folder: Path) -> None:
    report, _, done = reported(folder, "cpu.py", status=1)
    assert "can't convert fl:0 device type tensor to numpy" in done.stderr
    assert report.failure == "exit status 1"


def test_a_script_that_fails_is_reported_until_then(folder: Path) -> None:
    report, _, done = reported(folder, "train.py", "--", "--fail", status=1, **ON_HOST)
    assert "ValueError: half way" in done.stderr
    assert report.candidates[0].calls == 5
    assert "ended with an error" in (folder / "r.html").read_text()


def test_a_model_that_fails_is_reported(folder: Path) -> None:
    report, _, done = reported(folder, "model.py:fails", status=1, **ON_HOST)
    assert "IndexError" in report.failure
    assert "IndexError" in done.stderr


@pytest.mark.parametrize(
    "words, status, text",
    [
        (["none.py"], 2, "none.py: no such file"),
        (["none.py:build"], 2, "none.py: no such file"),
        (["model.py:bild"], 2, "has no 'bild'; did you mean 'build'"),
        (["model.py:number"], 2, "gave int, expected a torch.nn.Module"),
        (["model.py:alone"], 2, "without inputs: have it return (module, inputs)"),
        (["plain.py"], 1, "ended without a report"),
        (["killed.py"], 137, "killed.py ended with SIGKILL before there was anything to report"),
        (["train.py", "-o", "no/such/r.html"], 2, "no folder"),
        (["train.py", "-o", "-"], 2, "-: expected the name of a file"),
        (["train.py", "--json", "-"], 2, "-: expected the name of a file"),
        (["train.py", "-o", "x", "--json", "./x"], 2, "x: expected a file of its own"),
        ([], 2, "no script"),
    ],
)
def test_mistakes(folder: Path, words: list[str], status: int, text: str) -> None:
    done = command("report", *words, cwd=folder)
    assert done.returncode == status, done.stderr
    assert text in done.stderr
    assert "Traceback" not in done.stderr
