# SPDX-License-Identifier: Apache-2.0
"""The simulated chip, PoCL and Intel's runtime in one process, under PyTorch."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import opencl_host
import pytest
from opencl_chips import MISSING

pytest.importorskip("torch")
ROOT = pathlib.Path(__file__).resolve().parents[3]
SIM = os.environ.get("FL_SIM_LIBRARY", str(ROOT / "torch_fl" / "chips" / "sim" / "libfl_sim.so"))
RUNTIMES = [pytest.param(name, marks=[pytest.mark.skipif(name in MISSING, reason=MISSING.get(name, ""))])
            for name in ("pocl", "intel")]  # fmt: skip


def run(cache: pathlib.Path, *command: str, **environment: str) -> Any:
    """Call a function of several_chips.py in a process of its own."""
    if not os.path.exists(SIM):
        pytest.skip("needs the simulated chip")
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    settings = {
        "TORCH_FL_PLUGIN_PATH": f"{SIM}:{opencl_host.library_path()}",
        "TORCH_FL_CACHE_DIR": str(cache),
        "PYTHONPATH": path,
    }
    done = subprocess.run(
        [sys.executable, str(opencl_host.HERE / "several_chips.py"), *command],
        cwd=ROOT,
        env={**os.environ, **settings, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    assert "warnings generated" not in done.stderr  # compilers within the process are quiet
    return json.loads(done.stdout.split("RESULT")[-1])


@pytest.fixture(scope="module")
def cache(kernel_cache: str) -> pathlib.Path:
    return pathlib.Path(kernel_cache)


@pytest.fixture(scope="module")
def devices(cache: pathlib.Path) -> dict[str, str]:
    return dict(run(cache, "listed")["devices"])


def test_all_are_listed(cache):
    found = run(cache, "listed")
    assert {"sim", "pocl", "intel"} - set(MISSING) <= set(found["devices"])
    assert len(found["plugins"]) == 2
    assert all(plugin.endswith(("loaded as sim", "loaded as opencl")) for plugin in found["plugins"]), found


def test_each_runs_the_model(cache):
    run(cache, "model")


def test_tensors_go_between_all_pairs(cache):
    run(cache, "copies")


def test_without_coherent_memory_too(cache):
    run(cache, "copies", TORCH_FL_OPENCL_MEMORY="buffer")


def test_results_of_the_host_live_until_the_devices_are_done_with_them(cache):
    run(cache, "host_results")


def test_a_runtime_that_cannot_be_loaded_leaves_the_others_and_is_named(cache, tmp_path):
    for file in pathlib.Path(os.environ.get("OCL_ICD_VENDORS", "/etc/OpenCL/vendors")).glob("*.icd"):
        (tmp_path / file.name).write_text(file.read_text())
    (tmp_path / "lost.icd").write_text("/nonexistent/liblost.so\n")
    (tmp_path / "text.icd").write_text(f"{__file__}\n")
    found = run(cache, "listed", OCL_ICD_VENDORS=str(tmp_path))
    assert {"sim", "pocl", "intel"} - set(MISSING) <= set(found["devices"])
    for name in ("lost", "text"):
        assert f"{tmp_path}/{name}.icd names " in found["plugins"][1], found
    assert "/nonexistent/liblost.so, which cannot be loaded (" in found["plugins"][1]
    run(cache, "model", OCL_ICD_VENDORS=str(tmp_path))


def test_without_any_runtime_the_simulated_chip_works(cache, tmp_path):
    (tmp_path / "lost.icd").write_text("/nonexistent/liblost.so\n")
    found = run(cache, "listed", OCL_ICD_VENDORS=str(tmp_path))
    assert set(found["devices"]) == {"sim"}
    assert "skipped: " in found["plugins"][1]
    assert "shows no platform" in found["plugins"][1]
    assert "liblost.so, which cannot be loaded" in found["plugins"][1]


def test_the_same_seed_gives_the_same_numbers_everywhere(cache, tmp_path):
    """To the bit, with the simulated chip's own kernels, portable ones and none."""
    import torch

    run(cache, "draw", str(tmp_path))
    for hidden in ("1", "2"):
        run(cache, "draw", str(tmp_path), SIMCHIP_HIDE_KERNELS=hidden)
    drawn = {file.stem: torch.load(file) for file in tmp_path.glob("*.pt")}
    assert len(drawn) == 3 + 2 - len(MISSING)
    wrong = []
    for chip, numbers in drawn.items():
        for name, calls in numbers.items():
            if len(calls[0]) > 100 and torch.equal(*calls):
                wrong.append(f"{chip}: {name} does not go on")
            for ours, theirs in zip(calls, drawn["sim"][name]):
                if not torch.equal(ours, theirs):
                    error = (ours.double() - theirs.double()).abs().max()
                    wrong.append(f"{chip}: {name} ({(ours != theirs).sum()} differ, by {error:g} at most)")
    assert not wrong, wrong


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_thousand_steps_of_training_need_no_more_memory_than_the_first(cache, devices, runtime):
    seen = run(cache, "training", devices[runtime])
    assert len(set(seen["allocated"])) == 1, seen
    assert len(set(seen["reserved"])) == 1, seen
    # Not to the byte: compilers and allocators of the host keep something. A leak of 1 KB in each step would be 0.6 MB.
    assert seen["resident"][-1] - seen["resident"][2] < 8 << 20, seen


@pytest.mark.parametrize("memory", ["svm", "buffer"])
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_training_waits_only_where_the_user_reads(cache, devices, loader, runtime, memory):
    environment = {"TORCH_FL_OPENCL_LIBRARY": loader, "TORCH_FL_OPENCL_MEMORY": memory}
    found = run(cache, "waits", devices[runtime], **environment)
    assert found["steps"] == 0, found
    assert found["read"] > 0, found  # so that the counter is known to count
    assert found["pinned"] == 0, found


# The runtimes' own settings: they report this size, though they would give more.
SMALL = {"POCL_MEMORY_LIMIT": "1", "CL_CONFIG_CPU_FORCE_GLOBAL_MEM_SIZE": "1GB"}


@pytest.mark.parametrize("memory", ["svm", "buffer"])
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_out_of_memory_says_the_figures_and_work_goes_on(cache, devices, runtime, memory):
    device = devices[runtime]
    said = run(cache, "out_of_memory", device, TORCH_FL_OPENCL_MEMORY=memory, **SMALL)
    assert set(said) == {"beyond", "full", "limit"}
    for text in said.values():
        assert "fl out of memory. Tried to allocate " in text
        assert f"{device} has a total capacity of 1.00 GiB of which " in text
        assert "is allocated by PyTorch" in text
    assert "Tried to allocate 100.00 MiB" in said["full"]
    assert "alloc failed on " in said["full"]
    assert "this process may use 256.00 MiB of it (its memory_fraction)" in said["limit"]
