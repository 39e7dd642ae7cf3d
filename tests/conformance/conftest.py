# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.plugins.helpers import HEADERS


@pytest.fixture(scope="package")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plugin whose kernels break one rule each."""
    library = tmp_path_factory.mktemp("faulty") / "libfl_faulty.so"
    source = Path(__file__).with_name("faulty.c")
    compiler = os.environ.get("CC") or "cc"
    command = [compiler, "-std=gnu99", "-shared", "-fPIC", f"-I{HEADERS}", str(source), "-o", str(library), "-lm"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return library
