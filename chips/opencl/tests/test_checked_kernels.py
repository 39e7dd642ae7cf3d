# SPDX-License-Identifier: Apache-2.0
"""No portable kernel leaves its tensors, reads what nobody wrote, or races with itself: Oclgrind looks at every access.

Tensors are allocations of their own here, and work items get three elements each, so that tiny sizes show everything.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys

import kernel_text
import opencl_host
import pytest

VENDORS = pathlib.Path(sys.prefix) / "share" / "opencl" / "oclgrind"  # where scripts/opencl.sh names it
ROOT = pathlib.Path(__file__).resolve().parents[3]
BAD = {  # what work item i of 5 does with a, which is written, and b and c, which are not, and what is said of it
    "b[i] = a[i];": "",
    "b[i + 1] = a[i];": "Invalid write of size 4",
    "b[i] = a[i - 1];": "Invalid read of size 4",
    "b[0] = a[i];": "Write-write data race",
    "b[i] = a[i]; if (i > 0) b[i] += b[i - 1];": "Read-write data race",
    "if (i > 0) c[i] = a[i]; b[i] = c[i];": "Uninitialized value",
    "float x[2]; x[1] = a[i]; b[i] = x[a[i] > 9];": "Uninitialized value",
}
BAD_KERNELS = """
import json, sys
import numpy as np
from opencl_host import Chip, Plugin
head = "__kernel void k(__global float* a, ulong p, __global float* b, ulong q, __global float* c, ulong r) {"
log, *bodies = sys.argv[1:]
chip = Chip(Plugin(), 0)
said = {}
with open(log) as lines:
    for body in bodies:
        a, b, c = chip.place(np.arange(5, dtype=np.float32)), chip.alloc(20), chip.alloc(20)
        chip.launch(chip.compile(f"{head} const int i = get_global_id(0); {body} }}"), "k", 5, a, b, c, local=(1,))
        chip.synchronize()
        said[body] = lines.read()
print(json.dumps(said))
"""


# Tuning measures for seconds, so its kernel runs here with the head of a product's, which has the same tiles.
TUNING = """
import sys
import ctypes as C
import numpy as np
from kernel_text import KERNELS, sources
from opencl_host import Chip, Plugin
log, folder = sys.argv[1:]
product = next(s for s in sources(folder) if "#define TILES\\n" in s and "#define WIDTH 16\\n" in s)
size = {name: int(product.partition(f"#define {name} ")[2].split()[0]) for name in ("ROWS", "VECTORS", "WIDTH")}
rows, columns = size["ROWS"], size["VECTORS"] * size["WIDTH"]
source = product[: product.index("typedef struct")] + "typedef struct { i64 k, strips, panels, total, chunk; } Params;"
source += (KERNELS / "tuning.h").read_text() + "__kernel void k(__global f32* out, ulong o, __global const f32* strips,"
source += " ulong s, __global const f32* panels, ulong q, const Params p) {"
source += " tiles_measured(out, strips, panels, p, get_global_id(0)); }"
chip = Chip(Plugin(), 0)
class Params(C.Structure):
    _fields_ = [(name, C.c_int64) for name in ("k", "strips", "panels", "total", "chunk")]
strips, panels = (chip.place(np.ones(2 * 3 * n, dtype=np.float32)) for n in (rows, columns))
out = chip.alloc(4 * 5 * rows * columns)
with open(log) as lines:
    chip.launch(chip.compile(source), "k", 3, out, strips, panels, Params(3, 2, 2, 5, 2), local=(1,))
    assert (chip.read(out, 5 * rows * columns, np.float32) == 3).all()
    print('{"said": "' + lines.read()[:2000].replace("\\n", " ").replace("\\t", " ").replace('"', "'") + '"}')
"""
# Text that goes with what others use of a file or is for other devices, a gradient that PyTorch takes apart, and what
# TUNING runs.
NOT_USED = {f"math.h: v_{name}()" for name in ("erf", "expm1", "log1p", "tanh")}
NOT_USED |= {"prelude_opencl_c.h: line 3, #ifdef __clang__", "special.h: line 8, #else"}
NOT_USED |= {"pointwise.h: mish_gradient()", "tuning.h: tiles_measured()"}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    if not any(VENDORS.glob("*.icd")):
        pytest.skip(f"no Oclgrind in {VENDORS}: run scripts/opencl.sh as root")
    compiler = shutil.which("cc") or shutil.which("gcc") or pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("oclgrind")
    source, loader = opencl_host.HERE / "oclgrind_loader.c", folder / "libloader.so"
    command = [compiler, "-shared", "-fPIC", source, "-o", loader, "-Wl,--no-as-needed", "-l:libOpenCL.so.1", "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (folder / "log").touch()
    path = [str(ROOT), str(opencl_host.HERE), os.environ.get("PYTHONPATH", "")]
    oclgrind = dict.fromkeys(("CHECK_API", "DATA_RACES", "UNIFORM_WRITES", "UNINITIALIZED", "NUM_THREADS"), "1")
    # Its check for what nobody wrote does not know every instruction that LLVM's optimizer makes, and takes a whole
    # vector for unwritten where a multiply-add reads one such number (lanes beyond the last point of a tile).
    oclgrind |= {
        "BUILD_OPTIONS": "-cl-opt-disable -ffp-contract=off",
        "LOG": str(folder / "log"),
        "MAX_ERRORS": "10000",
        "COMPUTE_UNITS": "4",  # what a single one does is not cut into parts
    }
    return {
        **os.environ,
        **{f"OCLGRIND_{name}": value for name, value in oclgrind.items()},
        "OCL_ICD_VENDORS": str(VENDORS),
        "FL_OPENCL_LIBRARY": opencl_host.library_path(),
        "TORCH_FL_PLUGIN_PATH": opencl_host.library_path(),
        "TORCH_FL_OPENCL_LIBRARY": str(loader),
        "TORCH_FL_CACHE_DIR": str(folder),
        "TORCH_FL_MEMORY_CACHING": "0",
        "TORCH_FL_WORK_PER_ITEM": "3",
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
    }


def output_of(command: list[str], environment: dict[str, str]) -> dict:
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return json.loads(done.stdout)


def test_bad_kernels_are_found(environment):
    said = output_of(["-c", BAD_KERNELS, environment["OCLGRIND_LOG"], *BAD], environment)
    for body, wanted in BAD.items():
        assert said[body].strip().startswith(wanted), (body, said[body])
        assert bool(said[body]) == bool(wanted), (body, said[body])


def check(environment, *patterns):
    pytest.importorskip("torch")
    pytest.importorskip("tests.ops.portable")
    program = str(opencl_host.HERE / "checked_kernels.py")
    found = output_of([program, environment["OCLGRIND_LOG"], *patterns], environment)
    assert not found["said"], "\n".join(f"{name}: {text}" for name, text in found["said"].items())
    return found


def test_every_portable_kernel_is_clean(environment):
    found = check(environment)
    assert not found["never_ran"], f"nothing runs these; add a call to kernel_calls.py: {found['never_ran']}"
    modules = pathlib.Path(environment["TORCH_FL_CACHE_DIR"]) / "modules"
    left = kernel_text.never_ran(modules, shutil.which("cc") or "gcc", NOT_USED)
    assert not left, f"nothing runs these parts of kernels/; add a call to kernel_calls.py: {sorted(left)}"
    assert output_of(["-c", TUNING, environment["OCLGRIND_LOG"], str(modules)], environment)["said"] == ""


def test_parts_that_no_module_holds_are_told(environment, tmp_path):
    left = kernel_text.never_ran(tmp_path, shutil.which("cc") or "gcc", set())
    assert {"product.h: dots()", "sort.h: BLOCK_COUNT", "math.h: v_exp()"} <= left
    assert any(part.startswith("convolution.h: line") and "BIAS_GRADIENT" in part for part in left)


@pytest.mark.skipif("FL_CHECK_KERNELS" not in os.environ, reason="takes many minutes: FL_CHECK_KERNELS=1 asks for it")
def test_portable_kernels_are_clean_with_the_samples_of_all_operators(environment):
    assert check(environment, "*")["checks"] > 100
