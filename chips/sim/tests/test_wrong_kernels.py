# SPDX-License-Identifier: Apache-2.0
"""Alignment finds kernels that were made wrong, names operator and layer, and leaves right kernels alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from wrong_models import FAULTS, MODELS

HERE = Path(__file__).parent
PLUGIN = os.environ.get("TORCH_FL_PLUGIN_PATH", "")

pytestmark = pytest.mark.skipif(
    not PLUGIN.endswith("libfl_sim.so"), reason="torch_fl with the simulated chip is needed"
)


@pytest.fixture(scope="module")
def reports() -> dict[str, Any]:
    """Reports on right models and on faults, from three processes."""
    shares = [("right", "0"), ("faults", "0"), ("faults", "1")]
    command = [sys.executable, str(HERE / "wrong_models.py")]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SIMCHIP")}
    pipe = subprocess.PIPE
    running = [
        subprocess.Popen([*command, *share], env=environment, stdout=pipe, stderr=pipe, text=True) for share in shares
    ]
    found: dict[str, Any] = {}
    for process in running:
        output, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        found |= json.loads(output)
    return found


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_right_kernels_raise_no_alarm(reports: dict[str, Any], make: Any) -> None:
    report = reports[make.__name__]
    assert report["ok"], report["conclusion"]
    assert sum(op["probes"] for op in report["ops"]) > 10
    assert all(layer["judgement"]["verdict"] in ("exact", "noise") for layer in report["layers"])


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_kernel_is_found_and_named(reports: dict[str, Any], fault: str) -> None:
    report, (_, operators, layer) = reports[fault], FAULTS[fault]
    first = report["first_op"]
    assert not report["ok"]
    assert first["op"] == operators[0], report["conclusion"]
    assert first["place"]["layer"] == layer, report["conclusion"]
    assert first["reason"]


# Faults that the model's own data show too little or not at all: what is found is found by probes.
@pytest.mark.parametrize(
    ("fault", "probe"),
    [
        ("dropped-nan", "NaN in tensor 0"),
        ("odd-tail", "size 15 instead of 16"),
        ("ignored-strides", "strided arguments"),
        ("stale-weights", "other data at the same addresses"),
    ],
)
def test_probes_show_what_the_models_data_do_not(reports: dict[str, Any], fault: str, probe: str) -> None:
    assert reports[fault]["first_op"]["probe"] == probe


# The first layer that is wrong by itself, whatever it hands on to others and whatever contains it.
@pytest.mark.parametrize(
    ("fault", "layer", "phase"),
    [
        ("wrong-axis", "1.weights", "forward"),
        ("softmax-gradient", "1.weights", "backward"),
        ("missing-factor", "loss", "backward"),
        ("lost-duplicates", "0", "backward"),
        ("cleared-output", "1", "forward"),
        ("truncating-cast", "narrow", "forward"),
    ],
)
def test_a_wrong_layer_is_named_by_its_own_fault(reports: dict[str, Any], fault: str, layer: str, phase: str) -> None:
    first = reports[fault]["first_layer"]
    assert (first["name"], first["phase"]) == (layer, phase)


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_is_named_and_nothing_else(reports: dict[str, Any], fault: str) -> None:
    wrong = {op["op"] for op in reports[fault]["ops"] if op["verdict"] in ("wrong", "inaccurate")}
    assert wrong == set(FAULTS[fault][1])


def test_an_unknown_fault_is_told() -> None:
    code = "import torch; torch.ones(2, device='fl:0').relu().cpu()"
    result = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "SIMCHIP_WRONG": "no-such"}, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert "SIMCHIP_WRONG=no-such names no fault; expected one of: truncating-cast, " in result.stderr
