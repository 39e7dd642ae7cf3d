# SPDX-License-Identifier: Apache-2.0
"""The command, on a chip whose kernels break one rule each and on the simulator."""

from __future__ import annotations

import csv
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.plugins.helpers import ROOT
from torch_fl.conformance.cli import app

SIM = os.environ.get("FL_SIM_LIBRARY", "")
needs_sim = pytest.mark.skipif(not SIM, reason="needs the simulator")


def check(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("TORCH_FL", "TORCHFL"))}
    return subprocess.run(
        [sys.executable, "-m", "torch_fl.conformance", *words],
        cwd=ROOT,
        env={**clean, "TORCH_FL_PLUGIN_PATH": "", **environment},
        capture_output=True,
        text=True,
        timeout=400,
    )


def rows_of(file: Path) -> dict[tuple[str, str], dict[str, str]]:
    with file.open(newline="") as stream:
        return {(row["op"].removeprefix("aten::"), row["dtype"]): row for row in csv.DictReader(stream)}


@pytest.fixture(scope="module")
def faulty_run(faulty: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, int, Path]:
    folder = tmp_path_factory.mktemp("run")
    words = ["--quick", "--timeout", "10", "--csv", str(folder / "x.csv"), "--report", str(folder / "x.json")]
    result = check(str(faulty), *words)
    return result.stdout + result.stderr, result.returncode, folder


@pytest.mark.parametrize(
    ("op", "verdict", "reason"),
    [
        ("relu", "STRICT", ""),
        ("cos", "BASIC", "NMSE 2.5e-09 above"),
        ("exp", "FAILED", "NMSE 0.0001 above 1e-07; worst at"),
        ("tanh", "FAILED", "NaN or infinity: "),
        ("neg", "FAILED", "crash: SIGSEGV"),
        ("abs", "FAILED", "timeout: no end within 10 s"),
        ("sqrt", "FAILED", "4 guard bytes changed, from 0 bytes behind its end"),
        ("ceil", "FAILED", "4 guard bytes changed, from 8 bytes before its start"),
        ("floor", "FAILED", "the chip fell off the bus"),
        ("sin", "FAILED", "no sine today"),
        ("erf", "FAILED", "the argument self, which is only read, was changed"),
    ],
)
def test_each_fault_costs_its_operator_and_nothing_else(
    faulty_run: tuple[str, int, Path], op: str, verdict: str, reason: str
) -> None:
    row = rows_of(faulty_run[2] / "x.csv")[op, "float32"]
    assert row["verdict"] == verdict, row
    assert reason in row["reason"], row


def test_a_kernel_without_a_case_is_listed_and_the_run_fails(faulty_run: tuple[str, int, Path]) -> None:
    output, status, folder = faulty_run
    assert rows_of(folder / "x.csv")["_trilinear", "-"]["reason"] == "the kit has no case for it"
    assert status == 1
    assert "9 FAILED" in output
    verified = check("--verify", str(folder / "x.json"))
    assert verified.returncode == 0, verified.stderr
    assert "unchanged; chip faulty" in verified.stdout
    page = (folder / "x.md").read_text()
    assert "libfl_faulty.so | SHA-256 " in page
    assert "| driver | 7.3 |" in page


def test_a_changed_report_is_refused(faulty_run: tuple[str, int, Path], tmp_path: Path) -> None:
    changed = tmp_path / "x.json"
    text = (faulty_run[2] / "x.json").read_text()
    changed.write_text(re.sub(r'("verdict": ?)"FAILED"', r'\1"STRICT"', text))
    assert changed.read_text() != text
    result = check("--verify", str(changed))
    assert result.returncode == 1
    assert "changed after the run" in result.stderr


def test_filters_choose_operators_and_a_sound_choice_succeeds(faulty: Path) -> None:
    result = check(str(faulty.parent) + "/", "--ops", "re*", "--dtypes", "float32", "-v")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "1 STRICT (operators with types; 1 operator)" in result.stdout


def test_without_guards_an_overwriting_kernel_goes_unseen(faulty: Path) -> None:
    result = check(str(faulty), "--ops", "sqrt", "--guards", "0", "--quick")
    assert result.returncode == 0, result.stdout


def test_support_tells_what_a_chip_takes_and_why_not(faulty: Path, tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    result = check(
        str(faulty), "--mode", "support", "--ops", "relu,mm", "--dtypes", "float32,float64", "--csv", str(file)
    )
    assert result.returncode == 0, result.stderr
    rows = rows_of(file)
    assert rows["relu", "float32"]["verdict"] == "SUPPORTED"
    assert rows["relu", "float64"]["verdict"] == "REFUSED"
    assert "float64" in rows["relu", "float64"]["reason"]
    assert rows["mm", "float32"]["reason"] == "ran on the host: the chip has no kernel for aten::mm"


def test_mistakes_are_told() -> None:
    for words, text in (
        (["nosuch"], "no chip 'nosuch'"),
        (["./nosuch.so"], "no chip was loaded from"),
    ):
        result = check(*words)
        assert result.returncode == 2, words
        assert text in result.stderr, result.stderr


def test_mistaken_options_are_told_before_anything_runs() -> None:
    for words, text in (
        (["x", "--routes", "kernal"], "no route 'kernal'"),
        (["x", "--dtypes", "float33"], "no element type 'float33'"),
        ([], "name a chip"),
    ):
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 2, words
        assert text in result.output, result.output


@needs_sim
def test_the_simulator_is_strict_but_for_what_is_explained(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    result = check("sim", "--quick", "--routes", "kernel", "--jobs", "2", "--csv", str(file), TORCH_FL_PLUGIN_PATH=SIM)
    assert result.returncode == 0, result.stdout + result.stderr
    rows = rows_of(file)
    others = {key[0]: row["reason"] for key, row in rows.items() if row["verdict"] != "STRICT"}
    nothing = "no routed call: PyTorch or the core did it without this kernel"
    assert others == {
        "copy": "strides: expected [14, 2], found [7, 1]",  # of copies of tensors with gaps
        "zero_": nothing,  # filled by the chip's memory functions
        "mish_backward": nothing,  # which PyTorch composes of others
        "nansum": "the CPU refuses every case",  # complex numbers
    }
    assert len(rows) > 800


@needs_sim
def test_gradients_and_times(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    words = ["--routes", "kernel", "--dtypes", "float32", "--csv", str(file)]
    result = check("sim", "--mode", "grad", "--ops", "mm,gelu,sum,argmax", *words, TORCH_FL_PLUGIN_PATH=SIM)
    assert result.returncode == 0, result.stdout + result.stderr
    rows = rows_of(file)
    assert {rows[op, "float32"]["verdict"] for op in ("mm", "gelu", "sum")} == {"STRICT"}
    assert rows["argmax", "float32"]["verdict"] == "UNTESTED"
    result = check("sim", "--mode", "perf", "--ops", "mm,argmax,addr", *words, TORCH_FL_PLUGIN_PATH=SIM)
    assert result.returncode == 0, result.stdout + result.stderr
    rows = rows_of(file)
    assert float(rows["mm", "float32"]["chip_us"]) > 0
    assert float(rows["mm", "float32"]["gflop_per_s"]) > 0.1
    assert float(rows["argmax", "float32"]["gb_per_s"]) > 0
    assert rows["addr", "float32"]["verdict"] == "UNTESTED"


def test_commands_of_the_document_have_options_that_exist() -> None:
    text = (ROOT / "docs" / "conformance.md").read_text()
    commands = re.findall(r"^torch-fl check (.*?)(?:\s+#.*)?$", text, re.M)
    assert len(commands) >= 8
    for command in commands:
        result = CliRunner().invoke(app, [*shlex.split(command), "--help"])
        assert result.exit_code == 0, (command, result.output)


@needs_sim
def test_samples_of_pytorch_can_be_added(tmp_path: Path) -> None:
    pytest.importorskip("expecttest")
    file = tmp_path / "x.csv"
    words = ["--opinfo", "--quick", "--dtypes", "float32", "--ops", "opinfo:mm,opinfo:sum", "--csv", str(file)]
    result = check("sim", *words, TORCH_FL_PLUGIN_PATH=SIM)
    assert result.returncode == 0, result.stdout + result.stderr
    assert {op: row["verdict"] for (op, _), row in rows_of(file).items()} == {
        "opinfo:mm": "STRICT",
        "opinfo:sum": "STRICT",
    }
