# SPDX-License-Identifier: Apache-2.0
"""One warning when much of a program leaves the chip; none otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

import torch_fl
from torch_fl.observe import storm

PROLOGUE = """
import warnings
import torch, torch_fl

def run(on_chip, on_host):
    x = torch.rand({size}, device="fl")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(on_chip):
            x.neg()
        for _ in range(on_host):
            torch.poisson(x)  # the chip has no kernel for it
    return [w for w in caught if issubclass(w.category, UserWarning)]
"""


def run(code: str, size: int = 1000, **environment: str) -> list[str]:
    """Run it in a fresh process: the warning is given once in each. Returns the printed lines."""
    result = subprocess.run(
        [sys.executable, "-c", PROLOGUE.format(size=size) + textwrap.dedent(code)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def test_one_warning_names_the_worst_with_cost_and_reason() -> None:
    lines = run(
        """
        found = run(100, 3000)
        print(len(found), issubclass(found[0].category, torch_fl.FallbackStormWarning), found[0].filename)
        print(found[0].message)
        print(len(run(0, 3000)))
        """,
        size=20000,
    )
    assert lines[0] == "1 True <string>"
    assert "% of the calls on fl devices leave the chip" in lines[1]
    assert lines[2].startswith("  aten::poisson on sim (fl:0): ")
    assert lines[2].endswith("ms on the host: the chip has no kernel for aten::poisson")
    assert "torch-fl report SCRIPT -o report.html" in lines[3]
    assert lines[-1] == "0"


SMALL = {"TORCH_FL_STORM_MINIMUM_CALLS": "50", "TORCH_FL_STORM_MINIMUM_MS": "0"}


def test_a_native_run_never_warns() -> None:
    assert run("print(len(run(20000, 0)))", **SMALL) == ["0"]


def test_short_runs_do_not_warn() -> None:
    assert run("print(len(run(10, 900)))", size=2) == ["0"]  # too few calls
    assert run("print(len(run(10, 1100)))", size=2, TORCH_FL_STORM_MINIMUM_MS="60000") == ["0"]  # too little time


def test_few_calls_of_little_cost_do_not_warn() -> None:
    code = """
        import time
        time.sleep(1)  # so that their share of the time is small
        print(len(run(20000, 100)))
    """
    assert run(code, size=2, **SMALL) == ["0"]


def test_thresholds() -> None:
    assert run("print(len(run(10, 200)))", **SMALL) == ["1"]
    assert run("print(len(run(10, 200)))", TORCH_FL_STORM_SHARE="0", **SMALL) == ["0"]
    code = """
        torch_fl.set_config("storm_share", 0)
        print(len(run(10, 200)))
        torch_fl.set_config("storm_share", 0.5)
        print(len(run(10, 200)))
    """
    assert run(code, **SMALL) == ["0", "1"]


def test_as_an_error_it_is_raised_by_the_call() -> None:
    code = """
        x = torch.rand(8, device="fl")
        warnings.simplefilter("error", torch_fl.FallbackStormWarning)
        try:
            for i in range(200):
                torch.poisson(x)
        except torch_fl.FallbackStormWarning:
            print("raised")
        print(torch.poisson(x).device)
    """
    assert run(code, **SMALL) == ["raised", "fl:0"]


def test_the_backward_pass_may_warn() -> None:
    code = """
        x = torch.rand(8, device="fl", requires_grad=True)

        class Backward(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()

            @staticmethod
            def backward(ctx, grad):
                for _ in range(200):
                    torch.poisson(grad.abs())
                return grad

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            Backward.apply(x).sum().backward()
        print(len(caught), x.grad.sum().item())
    """
    assert run(code, **SMALL) == ["1 8.0"]


@pytest.mark.parametrize(
    ("key", "bad"), [("storm_share", 1.5), ("storm_share", "x"), ("storm_share", True), ("storm_minimum_calls", -1)]
)
def test_wrong_thresholds_are_refused(key: str, bad: object) -> None:
    with pytest.raises(torch_fl.ConfigError, match=f"{key}: {bad!r} is not a "):
        torch_fl.set_config(key, bad)


def test_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["folder/train.py"])
    rows = [("aten::sort", "sim", 0, 1200, 35_200_000, "no kernel")]
    lines = storm.text(0.351, 0.62, rows).splitlines()
    assert lines[0].startswith("35% of the calls on fl devices leave the chip, which took 62% of the time so far.")
    assert lines[1] == "  aten::sort on sim (fl:0): 1200 calls, 35.2 ms on the host: no kernel"
    assert "torch-fl report train.py -o report.html" in lines[2]
