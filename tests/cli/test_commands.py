# SPDX-License-Identifier: Apache-2.0
"""The commands that look at what is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.helpers import command, output, parsed

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("words", [["--help"], ["new", "--help"], ["--version"], ["include"]])
def test_commands_that_need_no_torch_do_not_import_it(words: list[str]) -> None:
    result = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "torch_fl", *words], capture_output=True, text=True, check=True
    )
    modules = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert "torch_fl.cli.app" in modules
    assert "torch" not in modules


def test_the_console_script_is_the_same_program() -> None:
    assert 'torch-fl = "torch_fl.cli:main"' in (ROOT / "pyproject.toml").read_text()
    code = "import sys; sys.argv = ['/somewhere/bin/torch-fl', '--help']; from torch_fl.cli import main; main()"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.startswith("Usage: torch-fl [OPTIONS] COMMAND")
    for name in ("devices", "doctor", "ops", "validate", "schema", "new", "build", "check", "bench", "compare"):
        assert f"\n  {name} " in result.stdout


def test_the_documents_name_commands_that_exist() -> None:
    commands = set(re.findall(r"^  ([a-z]+)  ", output("--help"), re.M))
    text = (ROOT / "docs" / "command_line.md").read_text()
    named = set(re.findall(r"torch-fl ([a-z]+)", text))
    own = "devices doctor ops run report align bench compare new build check validate schema include"
    assert set(own.split()) == named == commands


def test_an_unknown_command_is_refused() -> None:
    result = command("nonsense")
    assert result.returncode == 2
    assert "No such command 'nonsense'" in result.stderr


def test_devices() -> None:
    table = output("devices", SIMCHIP_DEVICES="3")
    assert all(f"fl:{i}" in table for i in range(3))
    rows = parsed("devices")
    assert [row["device"] for row in rows] == ["fl:0", "fl:1"]
    assert rows[1]["chip"] == "sim"
    assert parsed("devices", TORCH_FL_PLUGIN_PATH="") == []
    assert "no device" in output("devices", TORCH_FL_PLUGIN_PATH="")


def test_ops_lists_kernels_and_portable_ones() -> None:
    rows = parsed("ops", "--filter", "softmax")
    assert {row["route"] for row in rows} == {"kernel", "portable"}
    assert all("softmax" in row["op"] for row in rows)
    table = output("ops", "--chip", "sim", "--filter", "aten::relu")
    assert "aten::relu" in table
    assert "sim: " in table
    result = command("ops", "--chip", "smi")
    assert result.returncode == 1
    assert "no chip 'smi'; did you mean 'sim'? (chips: sim)" in result.stderr


MODEL = """
import sys, torch
print("printed by the script", sys.argv, __name__)
x = torch.rand(64, 64)
for _ in range(3):
    torch.poisson(x)
torch.special.zeta(x + 2, x + 1)
(x @ x).relu()
"""


def test_ops_that_a_script_misses(tmp_path: Path) -> None:
    script = tmp_path / "model.py"
    script.write_text(MODEL)
    found = parsed("ops", "--missing", script, SIMCHIP_HIDE_COMPILER="1")
    missing = {row["name"]: row["calls"] for row in found["missing"]}
    assert missing["aten::poisson"] == 3
    assert "aten::mm" not in missing
    assert found["failure"] == ""
    assert found["calls"] > 5
    table = output("ops", "--missing", script, SIMCHIP_HIDE_COMPILER="1")
    assert "printed by the script" in table
    assert "calls left the chip, most of all" in table
    only = output("ops", "--missing", script, "--filter", "poisson", SIMCHIP_HIDE_COMPILER="1")
    assert "zeta" not in only


def test_a_script_that_fails_is_counted_until_then(tmp_path: Path) -> None:
    script = tmp_path / "model.py"
    script.write_text(MODEL + "raise ValueError('half way')\n")
    result = command("ops", "--missing", script)
    assert result.returncode == 1
    assert "aten::poisson" in result.stdout
    assert "ValueError: half way" in result.stderr
    result = command("ops", "--missing", tmp_path / "none.py")
    assert result.returncode == 1
    assert "none.py: no such file" in result.stderr


# ---- doctor --------------------------------------------------------------------------------------------------------


def findings(status: int, **environment: str) -> dict[str, list[tuple[str, str, str]]]:
    report = parsed("doctor", status=status, **environment)
    assert report["healthy"] == (status == 0)
    sections: dict[str, list[tuple[str, str, str]]] = {}
    for row in report["findings"]:
        sections.setdefault(row["section"], []).append((row["state"], row["text"], row["advice"]))
    return sections


def test_doctor_finds_a_healthy_machine(tmp_path: Path) -> None:
    found = findings(0, TORCH_FL_CACHE_DIR=str(tmp_path))
    texts = [text for _, text, _ in found["versions"]]
    assert any(text.startswith("torch 2.") for text in texts)
    assert "driver simchip 1.0" in found["devices"][0][1]
    assert "loaded as sim" in found["plugins"][0][1]
    assert found["cache"] == [("ok", f"{tmp_path}: 0 files, 0.0 MiB", "")]
    assert "nothing is wrong" in output("doctor", TORCH_FL_CACHE_DIR=str(tmp_path))


@pytest.mark.parametrize(
    ("section", "environment", "words"),
    [
        ("environment", {"TORCH_FL_CACH_DIR": "/tmp"}, "did you mean TORCH_FL_CACHE_DIR"),
        ("environment", {"TORCH_FL_ADD_PLUGIN_PATH": "/no/such"}, "no such file or folder: /no/such"),
        ("plugins", {"TORCH_FL_ADD_PLUGIN_PATH": "/no/such"}, "/no/such  [TORCH_FL_ADD_PLUGIN_PATH]  skipped"),
        ("versions", {"TORCH_FL_FALLBACK": "bogus"}, "torch-fl is inactive: TORCH_FL_FALLBACK: 'bogus'"),
        ("versions", {"TORCH_FL_FALBACK": "deny"}, "did you mean 'TORCH_FL_FALLBACK'?"),
        ("environment", {"TORCH_FL_MEMORY_POOL_SIZE": "lots"}, "'lots' is not a whole number"),
        ("settings", {"TORCH_FL_CONFIG": "/no/such.yaml"}, "TORCH_FL_CONFIG=/no/such.yaml: no such file"),
        ("devices", {"TORCH_FL_PLUGIN_PATH": ""}, "there is none"),
        ("cache", {"TORCH_FL_CACHE_DIR": "/dev/null/cache"}, "cannot be written"),
    ],
)
def test_doctor_tells_what_is_wrong(section: str, environment: dict[str, str], words: str) -> None:
    found = findings(1, **environment)
    bad = [f"{text} {advice}" for state, text, advice in found[section] if state == "problem"]
    assert any(words in text for text in bad), found


def test_doctor_tells_settings_and_their_sources(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("fusion_level: aggressive\n")
    found = findings(0, TORCH_FL_CONFIG=str(file), TORCH_FL_LOG="error")
    texts = [text for _, text, _ in found["settings"]]
    assert f"configuration file: {file}" in texts
    assert f"fusion_level = aggressive  [{file}:1]" in texts
    assert "log_level = error  [TORCH_FL_LOG]" in texts


def test_doctor_as_text_marks_problems() -> None:
    text = output("doctor", status=1, TORCH_FL_ADD_PLUGIN_PATH="/no/such")
    assert " ! /no/such  [TORCH_FL_ADD_PLUGIN_PATH]  skipped" in text
    assert "problem(s), marked with !" in text
