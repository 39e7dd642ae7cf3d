# SPDX-License-Identifier: Apache-2.0
"""Compiled modules are kept on disk, and nothing on that disk can hurt."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import device

pytestmark = pytest.mark.skipif(device.is_stock(), reason="about a chip with a compiler")

WORK = """
import torch, torch_fl
x = torch.arange(6.0).to("fl")
assert (x * 2 + 1).cpu().tolist() == [1, 3, 5, 7, 9, 11]
assert x.sum().item() == 15
print(sorted(torch_fl.counters().by("route")))
"""


def run(folder: Path | str, **environment: str) -> subprocess.CompletedProcess[str]:
    settings = {"SIMCHIP_HIDE_KERNELS": "2", "TORCH_FL_CACHE_DIR": str(folder), **environment}
    return subprocess.run(
        [sys.executable, "-c", WORK],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def succeed(folder: Path | str, **environment: str) -> str:
    done = run(folder, **environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr


def test_the_next_process_compiles_nothing(tmp_path: Path) -> None:
    """A compiler that takes notes: it is asked for its version, and for nothing else."""
    notes, compiler = tmp_path / "notes", tmp_path / "cc"
    compiler.write_text(f'#!/bin/sh\necho "$@" >> {notes}\nexec cc "$@"\n')
    compiler.chmod(0o755)
    compiled = []
    for _ in range(2):
        assert "['portable']" in succeed(tmp_path, SIMCHIP_CC=str(compiler))
        compiled.append([line for line in notes.read_text().splitlines() if "--version" not in line])
        notes.write_text("")
    assert compiled[0]
    assert not compiled[1]
    assert list((tmp_path / "modules").glob("*.bin"))


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "another", "a folder"])
def test_a_damaged_file_is_compiled_anew(tmp_path: Path, damage: str) -> None:
    succeed(tmp_path)
    for file in (tmp_path / "modules").glob("*.bin"):
        content = file.read_bytes()
        flipped = content[:-100] + bytes([content[-100] ^ 1]) + content[-99:]
        changed = {"cut": content[:-7], "flipped": flipped, "empty": b"", "another": b"torch-fl module 1\n" + bytes(60)}
        file.unlink()
        if damage == "a folder":
            file.mkdir()
        else:
            file.write_bytes(changed[damage])
    assert "['portable']" in succeed(tmp_path)


def test_nowhere_to_keep_them(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    assert "['portable']" in succeed(blocked)
    assert "['portable']" in succeed("")
    assert blocked.read_text() == "not a folder"


def test_without_a_compiler_the_host_serves(tmp_path: Path) -> None:
    output = succeed(tmp_path, SIMCHIP_CC="/no/such/compiler")
    assert "['host'" in output
