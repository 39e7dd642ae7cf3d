# SPDX-License-Identifier: Apache-2.0
"""The page about reports: its scripts are written, its commands run, its keys are the JSON's."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from torch_fl.observe.report.data import Candidate, Report, Row, Timeline

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reports.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.S | re.M)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where somebody followed the page from top to bottom."""
    made = tmp_path_factory.mktemp("reports")
    for script in blocks("python"):
        (made / script.splitlines()[0].removeprefix("# ")).write_text(script)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for command in "".join(blocks("sh")).splitlines():
        done = subprocess.run(
            command, shell=True, cwd=made, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        (made / f"{command.split()[-1]}.out").write_text(done.stdout + done.stderr)
    return made


def test_its_commands_write_what_it_says(folder: Path) -> None:
    assert "aten::poisson" in (folder / "train.py.out").read_text()
    assert "loss is finite: True" in (folder / "train.py.out").read_text()
    summary = json.loads((folder / "summary.json").read_text())
    for key in summary.keys() - {"program"}:
        assert f"`{key}`" in PAGE.read_text(), key
    calls = [json.loads(line) for line in (folder / "calls.jsonl").read_text().splitlines()]
    assert sum(call.get("op") == "aten::poisson" for call in calls) == 10
    for name in ("report.html", "model.html"):
        assert (folder / name).read_text().startswith("<!DOCTYPE html>")
    report = Report.from_json((folder / "report.json").read_text())
    assert report.candidates[0].op == "aten::poisson"


def test_every_key_of_the_json_is_in_it() -> None:
    text = PAGE.read_text()
    for kind in (Report, Candidate, Row, Timeline):
        for item in fields(kind):
            assert f"`{item.name}`" in text, f"{kind.__name__}.{item.name}"
