# SPDX-License-Identifier: Apache-2.0
"""Makes chips of descriptors. What is wrong with one becomes the reason why it is skipped."""

from __future__ import annotations

import os
from typing import Any

from torch_fl.chips import trust


def load_chip(core: Any, path: str, source: str) -> None:
    """Load a descriptor's chip, or report why it is skipped."""
    try:
        core.load_described(_spec(path), path, source)
    except Exception as error:  # a broken file must not stop PyTorch from being imported
        core.skip_plugin(path, source, _reason(error))


def _spec(path: str) -> dict[str, Any]:
    from torch_fl.chips import descriptor
    from torch_fl.chips.descriptor.lower import lower

    spec = lower(descriptor.load(path))
    library = spec["library"]
    refusal = trust.why_not_file(library) if os.path.isabs(library) and os.path.exists(library) else ""
    if refusal:
        raise PermissionError(f"its library is not loaded: {refusal}. {trust.HOW_TO_ALLOW}")
    return spec


def _reason(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name in ("pydantic", "pydantic_core", "yaml"):
        return f"descriptors need the package {error.name}: pip install pydantic pyyaml"
    known = type(error).__name__ in ("DescriptorError", "PermissionError")
    return str(error) if known else f"{type(error).__name__}: {error}"
