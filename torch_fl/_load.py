# SPDX-License-Identifier: Apache-2.0
"""Brings the extension up: version check, device name, ``torch.fl``, plugins. Everything here happens once a process.

Two ways lead here. ``import torch`` calls `_autoload` through the entry point group ``torch.backends``; an exception
there would make ``import torch`` itself fail, so it only warns. ``import torch_fl`` by hand raises instead.
"""

from __future__ import annotations

import atexit
import importlib
import itertools
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

DEVICE_TYPE = "fl"

_lock = threading.RLock()
_core: ModuleType | None = None
_failure: BaseException | None = None


class LoadError(ImportError):
    """torch_fl is installed but cannot serve this process; the message says why and what to do."""


def core() -> Any:
    """Return the extension module, loaded and registered; raise what stopped it from loading otherwise."""
    if _core is None:
        initialize()
    return _core


def initialize() -> None:
    """Load the extension and register the device. Idempotent; a failure is remembered and raised again."""
    global _core, _failure
    import torch  # noqa: F401  (may call _autoload, which comes back here)

    with _lock:
        if _core is not None:
            return
        if _failure is not None:
            raise LoadError(str(_failure)) from _failure
        try:
            _bring_up()
        except BaseException as error:
            _core, _failure = None, error
            raise
    if "TORCH_FL_RUN" in os.environ:
        from torch_fl.observe import running

        running.begin()


def failure() -> str | None:
    """Return why the extension did not load, or None."""
    return None if _failure is None else str(_failure)


def _autoload() -> None:
    """Entry point of ``torch.backends``: never raises, so that a broken installation does not break PyTorch."""
    try:
        initialize()
    except Exception as error:
        message = f"torch_fl is installed but inactive, so there is no '{DEVICE_TYPE}' device: {error}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)


def on_import() -> None:
    """Finish ``import torch_fl``: raise on failure, unless PyTorch is importing us (then `_autoload` follows)."""
    if _is_command():  # it has commands that need no torch, and reports a failure instead of raising it
        return
    import torch  # may call _autoload

    if not _being_imported(torch):
        initialize()


def _being_imported(module: ModuleType) -> bool:
    return bool(getattr(module.__spec__, "_initializing", False))


def _is_command() -> bool:
    """Tell whether this is the command ``torch-fl`` or ``python -m torch_fl``."""
    words = sys.orig_argv
    as_module = "-m" in words and words[words.index("-m") + 1 :][:1] == ["torch_fl"]
    return as_module or os.path.basename(sys.argv[0] if sys.argv else "") == "torch-fl"


def _bring_up() -> None:
    """Do the work of `initialize`, in the order that PyTorch needs: name, module, methods, then chips."""
    global _core
    import torch
    from torch.utils import backend_registration

    check_version(torch.__version__)
    _core = core_module = _import_extension()  # set at once: PyTorch may call torch.fl's functions from here on

    from torch_fl import _dlpack, _fake, device
    from torch_fl.chips import discovery
    from torch_fl.configuration import settings
    from torch_fl.routing.errors import UnsupportedOpError

    backend_registration.rename_privateuse1_backend(DEVICE_TYPE)
    torch._register_device_module(DEVICE_TYPE, device)  # type: ignore[no-untyped-call]
    backend_registration.generate_methods_for_privateuse1_backend(for_storage=True)
    _dlpack.teach_dlpack_device()
    _fake.teach_fake_convolution(DEVICE_TYPE)
    core_module.set_unsupported_error(UnsupportedOpError)
    settings.start(core_module)
    _load_chips(core_module, discovery)
    settings.chips_loaded(core_module)
    core_module.enable_chip_kernels()
    _name_devices(core_module)
    atexit.register(core_module.shutdown)
    atexit.register(_let_autograd_rest)  # runs first


def _name_devices(core_module: Any) -> None:
    """Give devices the names of their vendors, where a descriptor says one."""
    types = core_module.device_types()
    if types:
        from torch_fl.device import names

        names.start(types)


def _load_chips(core_module: Any, discovery: Any) -> None:
    """Load what discovery found, in its order, which numbers the devices."""
    candidates = discovery.candidates()
    for described, group in itertools.groupby(candidates, key=lambda candidate: discovery.is_descriptor(candidate[0])):
        if not described:
            core_module.load_plugins(list(group))
            continue
        from torch_fl.chips import described as descriptors  # imports pydantic and yaml

        for path, source in group:
            descriptors.load_chip(core_module, path, source)
    for refusal in discovery.refused:
        core_module.skip_plugin(*refusal)


def _let_autograd_rest(seconds: float = 0.5) -> None:
    """Wait until PyTorch's autograd threads of devices are idle, at exit and for at most so many seconds.

    Such a thread may hold the last reference to a backward pass after the caller went on. It needs the interpreter to
    drop it, and Python ends threads that ask for a finalizing interpreter in a way that terminates the process
    (https://github.com/pytorch/pytorch/issues/38228). On the CPU the calling thread does the work, so scripts that end
    with a backward pass work there.
    """
    end, idle = time.monotonic() + seconds, 0
    while idle < 2 and time.monotonic() < end:
        time.sleep(0.0005)  # others get the interpreter
        states = [state for name, state in _threads() if name.startswith("pt_autograd")]
        if not states:
            return
        idle = idle + 1 if "R" not in states else 0


def _threads() -> Iterator[tuple[str, str]]:
    """Name and state of this process's threads, where the system tells."""
    for file in Path("/proc/self/task").glob("*/stat"):
        try:
            name, _, rest = file.read_text().partition("(")[2].rpartition(")")
        except OSError:  # it ended
            continue
        yield name, rest.split()[0]


def _import_extension() -> ModuleType:
    try:
        return importlib.import_module("torch_fl._C")
    except ImportError as error:
        raise LoadError(f"the extension torch_fl._C does not load: {error}. {_REBUILD}") from error


_REBUILD = "Rebuild torch-fl against the installed torch: pip install --no-build-isolation --force-reinstall torch-fl"


def check_version(found: str) -> None:
    """Refuse a torch that the extension was not compiled for: its classes' layouts change with every release."""
    try:
        from torch_fl._build_info import BUILT_FOR_TORCH
    except ImportError:
        raise LoadError(f"the extension torch_fl._C has not been built ({sys.prefix}). {_REBUILD}") from None
    if found.split("+")[0] != BUILT_FOR_TORCH:
        message = f"torch_fl was compiled for torch {BUILT_FOR_TORCH}, but this is torch {found}. {_REBUILD}"
        raise LoadError(message)
