# SPDX-License-Identifier: Apache-2.0
"""stress.cpp with the SDK compiled in, under ThreadSanitizer and Address/UndefinedBehaviorSanitizer, queued and inline."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent


@pytest.fixture(scope="module", params=["thread", "address,undefined"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    if not (compiler := shutil.which("g++")):
        pytest.skip("no g++")
    target = tmp_path_factory.mktemp("stress") / "stress"
    sources = [str(HERE / "stress.cpp"), *map(str, sorted((HERE.parent / "sdk").glob("*.cpp")))]
    flags = ["-std=c++20", "-O1", "-g", f"-fsanitize={request.param}", f"-I{HERE.parent / 'sdk'}", "-pthread"]
    subprocess.run([compiler, *flags, *sources, "-o", str(target)], check=True)
    return target


@pytest.mark.parametrize("inline", ["0", "1"])
def test_stress(program: pathlib.Path, inline: str) -> None:
    env = os.environ | {"SIMCHIP_INLINE": inline, "TSAN_OPTIONS": "halt_on_error=1", "SIMCHIP_CHECK": "1"}
    result = subprocess.run([str(program)], env=env, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr[-4000:]
