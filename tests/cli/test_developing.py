# SPDX-License-Identifier: Apache-2.0
"""`torch-fl check` on projects that are built and not installed, and descriptors."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tests.cli.helpers import command, output
from torch_fl.cli import build, developing
from torch_fl.cli.errors import CommandError


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> build.Project:
    """As `torch-fl new` and `build` leave it, with an empty file as its library."""
    output("new", "demo", cwd=tmp_path)
    found = build.find(tmp_path)
    (found.package_folder / "libfl_demo.so").touch()
    monkeypatch.setenv(developing.VARIABLE, "/before")
    monkeypatch.chdir(tmp_path)
    return found


def test_projects_are_read_from_their_own_declaration(project: build.Project) -> None:
    assert (project.chip, project.package, project.function) == ("demo", "torch_fl_backend_demo", "")
    assert [plugin.name for plugin in project.plugins()] == ["libfl_demo.so"]


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (["demo", "--fast"], ["demo", "--fast"]),
        (["demo", "--path", "torch-fl-backend-demo"], ["demo"]),
        (["demo", "--path=torch-fl-backend-demo"], ["demo"]),
        (["./torch-fl-backend-demo"], ["demo"]),
        (["--path", "."], []),
    ],
)
def test_check_finds_the_project(project: build.Project, words: list[str], left: list[str]) -> None:
    assert developing.prepare(words) == left
    assert os.environ[developing.VARIABLE] == f"{project.package_folder.resolve()}{os.pathsep}/before"


def test_other_chips_are_looked_for_as_always(project: build.Project) -> None:
    assert developing.prepare(["sim"]) == ["sim"]
    assert os.environ[developing.VARIABLE] == "/before"


def test_a_project_that_is_not_built_is_refused(project: build.Project) -> None:
    (project.package_folder / "libfl_demo.so").unlink()
    with pytest.raises(CommandError, match="has not been built: torch-fl build"):
        developing.prepare(["demo"])
    with pytest.raises(CommandError, match="--path needs a folder"):
        developing.prepare(["demo", "--path"])


def test_validate_locates_mistakes(tmp_path: Path) -> None:
    output("new", "demo", "--kind", "yaml", cwd=tmp_path)
    folder = tmp_path / "torch-fl-backend-demo"
    output("build", folder)
    file = folder / "torch_fl_backend_demo" / "demo.fl.yaml"
    assert output("validate", file) == f"{file}: valid\n"
    file.write_text(file.read_text().replace("aten::mm", "aten::mmm") + "vendr: x\n")
    text = output("validate", file, status=1)
    lines = len(file.read_text().splitlines())
    assert f"{file}:{lines}:1: vendr" in text
    found = json.loads(output("validate", file, "--json", status=1))
    assert {problem["line"] for problem in found[str(file)]} >= {lines}
    assert output("validate", tmp_path / "none.yaml", status=1)


def test_schema_is_json_schema() -> None:
    schema = json.loads(output("schema"))
    assert "supported_ops" in schema["properties"]


@pytest.mark.parametrize("kind", ["c", "yaml", "python"])
def test_from_nothing_to_a_report(kind: str, tmp_path: Path) -> None:
    """The first thing that a vendor types, in less than three minutes."""
    start = time.monotonic()
    output("new", "demo", "--kind", kind, cwd=tmp_path)
    output("build", cwd=tmp_path)
    text = output("check", "demo", "--report", tmp_path / "report.json", cwd=tmp_path)
    assert time.monotonic() - start < 180
    assert "3 STRICT (operators with types; 3 operators)" in text
    assert "unchanged" in output("check", "--verify", tmp_path / "report.json", cwd=tmp_path)


def test_a_report_that_was_tampered_with_is_told(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    for text in ('{"content": "EVIL", "sha256": "0"}', '{"content": {}, "content": {}, "sha256": "0"}', "[" * 100000):
        file.write_text(text)
        result = command("check", "--verify", file, cwd=tmp_path)
        assert result.returncode != 0
        assert "Traceback" not in result.stderr, result.stderr
        assert "not a conformance report" in result.stderr + result.stdout
