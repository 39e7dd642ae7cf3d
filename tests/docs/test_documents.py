# SPDX-License-Identifier: Apache-2.0
"""What the documents tell people to type is typed here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs" / "writing_a_plugin.md"
DESCRIPTORS = ROOT / "docs" / "descriptors.md"
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", document.read_text(), re.S | re.M)


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    result = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


PAGES = (
    "README.md",
    *(
        f"docs/{name}.md"
        for name in (
            "alignment",
            "baseline",
            "configuration",
            "counters",
            "device_names",
            "profiling",
            "python_backend",
            "routes",
            "torch_profiler",
        )
    ),
)


@pytest.mark.parametrize("name", PAGES)
def test_python_of_a_page_runs_from_top_to_bottom(name: str, tmp_path: Path) -> None:
    code = blocks(ROOT / name, "python")
    assert code
    run(sys.executable, "-c", "\n".join(code), cwd=tmp_path)


def test_readme_shows_what_the_router_says() -> None:
    output = run(sys.executable, "-c", "\n".join(blocks(ROOT / "README.md", "python")))
    assert re.search(r"^2 fl:0 True$", output, re.M)
    assert re.search(r"\bhost\b", output)
    assert "aten::poisson on sim: host (fallback: allow)" in output
    assert "aten::poisson cannot run on chip 'sim' (fl:0)" in output


def test_make_targets_of_the_documents_exist() -> None:
    text = "\n".join(line for page in DOCUMENTS for block in blocks(page, "sh") for line in block.splitlines())
    targets = set(re.findall(r"^(?:VENV=\S+ )?make ([a-z-]+)", text, re.M))
    assert {"demo", "test", "build"} <= targets
    for target in targets:
        run("make", "--dry-run", target)


def test_links_lead_somewhere() -> None:
    for page in DOCUMENTS:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.relative_to(ROOT)} links to {link}"


def test_descriptors_of_the_documents_are_good(tmp_path: Path) -> None:
    from torch_fl.chips.descriptor import validate

    texts = blocks(DESCRIPTORS, "yaml")
    assert texts
    for text in texts:
        (tmp_path / "vendor.fl.yaml").write_text(text)
        assert [str(problem) for problem in validate(tmp_path / "vendor.fl.yaml")] == []


def test_errors_of_the_documents_are_what_a_descriptor_gives(tmp_path: Path) -> None:
    from torch_fl.chips.descriptor import validate

    (text,), expected = blocks(DESCRIPTORS, "yaml wrong"), blocks(DESCRIPTORS, "text")[0]
    path = tmp_path / "vendor.fl.yaml"
    path.write_text(text)
    assert "".join(f"{problem}\n" for problem in validate(path)).replace(f"{tmp_path}/", "") == expected


def test_every_key_of_a_descriptor_is_in_its_document() -> None:
    from torch_fl.chips.descriptor.schema import generate

    schema, text = generate(), DESCRIPTORS.read_text()
    for model in (schema, *schema["$defs"].values()):
        for key in model["properties"]:
            assert f"`{key}`" in text, key


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the tutorial's plugin with the tutorial's command."""
    folder = tmp_path_factory.mktemp("toy")
    (source,) = blocks(TUTORIAL, "c")
    (folder / "toy.c").write_text(source)
    command = next(block for block in blocks(TUTORIAL, "sh") if block.startswith("cc "))
    shutil.copytree(ROOT / "include", folder / "include")
    run(*command.split(), cwd=folder)
    (script,) = blocks(TUTORIAL, "python")
    (folder / "try_toy.py").write_text(script)
    return folder


def test_tutorial_plugin_is_found(toy: Path) -> None:
    output = run(sys.executable, "-m", "torch_fl", TORCH_FL_PLUGIN_PATH=str(toy / "libfl_toy.so"))
    assert "fl:0  toy  Toy 1 (Example Chips), 1024 MiB" in output
    assert "loaded as toy" in output


def test_tutorial_script_computes_on_the_chip(toy: Path) -> None:
    output = run(sys.executable, "try_toy.py", cwd=toy, TORCH_FL_PLUGIN_PATH=str(toy / "libfl_toy.so"))
    assert re.search(r"aten::relu\s+toy 0\s+kernel", output), output
    assert re.search(r"aten::mm\s+toy 0\s+kernel", output), output
    assert re.search(r"toy 0\s+host", output), output
    assert "aten::mm on toy: kernel aten::mm (float32; checks each call)" in output


def test_tutorial_constraint_sends_a_call_elsewhere(toy: Path) -> None:
    code = """
import torch, torch_fl
a, b = torch.randn(2, 4097), torch.randn(4097, 2)
torch.testing.assert_close((a.to("fl") @ b.to("fl")).cpu(), a @ b)
(row,) = torch_fl.counters().where(op="aten::mm")
print(row.route, row.reason)
"""
    output = run(sys.executable, "-c", code, TORCH_FL_PLUGIN_PATH=str(toy / "libfl_toy.so"))
    assert output.startswith("host ")
    assert "the inner dimension may be at most 4096" in output
