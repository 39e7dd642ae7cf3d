# SPDX-License-Identifier: Apache-2.0
"""Processes: a fork after use is refused with advice, spawn works, exit is clean."""

from __future__ import annotations

import textwrap
from pathlib import Path

from tests.framework.helpers import run_child


def test_fork_then_touch() -> None:
    """A forked child that touches the device gets an error that names the spawn method, and both processes survive."""
    output = run_child(
        """
        import os, sys, torch
        x = torch.ones(3, device="fl")
        child = os.fork()
        if child == 0:
            assert torch.fl._is_in_bad_fork()
            failures = 0
            for touch in (lambda: torch.empty(1, device="fl"), lambda: x + 1, lambda: x.cpu(), lambda: x.sum().item()):
                try:
                    touch()
                except RuntimeError as error:
                    failures += "spawn" in str(error)
            torch.manual_seed(1)  # must stay possible
            assert torch.ones(2).sum() == 2
            sys.stdout.write(f"refused {failures}")
            sys.stdout.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert status == 0, status
        assert x.sum().item() == 3
        """
    ).stdout
    assert "refused 4" in output


def test_child_frees_inherited_tensors() -> None:
    """A forked child that exits normally, with inherited tensors alive, does not crash or hang."""
    run_child(
        """
        import os, sys, torch
        x = torch.ones(1000, device="fl")
        pinned = torch.ones(1000).pin_memory()
        child = os.fork()
        if child == 0:
            del x, pinned
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert x.sum().item() == 1000
        """
    )


def test_fork_before_use() -> None:
    """A child forked before the parent used a device may use it."""
    run_child(
        """
        import os, torch
        assert torch.fl.device_count() > 0
        child = os.fork()
        if child == 0:
            assert torch.ones(3, device="fl").sum().item() == 3
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert torch.ones(3, device="fl").sum().item() == 3
        """
    )


def test_spawn(tmp_path: Path) -> None:
    """A spawned process uses the device while the parent does too."""
    script = """
        import multiprocessing, torch

        def work(queue):
            queue.put(float(torch.full((4,), 2.0, device="fl").sum()))

        if __name__ == "__main__":
            torch.ones(3, device="fl").sum().item()
            context = multiprocessing.get_context("spawn")
            queue = context.Queue()
            process = context.Process(target=work, args=(queue,))
            process.start()
            assert queue.get(timeout=100) == 8.0
            process.join()
            assert process.exitcode == 0
        """
    path = tmp_path / "spawned.py"
    path.write_text(textwrap.dedent(script))
    run_child(f"import runpy; runpy.run_path({str(path)!r}, run_name='__main__')")


def test_exit_with_live_objects() -> None:
    """The process ends cleanly with tensors, streams, events and graphs alive."""
    result = run_child(
        """
        import torch
        model = torch.nn.Linear(4, 4).to("fl")
        loss = model(torch.randn(2, 4, device="fl")).sum()
        loss.backward()
        stream, event = torch.Stream("fl"), torch.Event("fl")
        with stream:
            kept = torch.randn(1000, device="fl") * 2
            event.record()
        generator = torch.Generator("fl")
        pinned = torch.empty(10, pin_memory=True)
        """
    )
    assert "Error" not in result.stderr, result.stderr


def test_no_autoload() -> None:
    """TORCH_DEVICE_BACKEND_AUTOLOAD=0 leaves PyTorch as it was; importing torch_fl brings the device."""
    run_child(
        """
        import torch
        assert not hasattr(torch, "fl")
        import torch_fl
        assert torch.ones(2, device="fl").sum().item() == 2
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
