# SPDX-License-Identifier: Apache-2.0
"""What an alignment found."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch_fl import _json
from torch_fl._files import write_whole
from torch_fl._words import counted
from torch_fl.observe.align.judge import LADDER, Verdict
from torch_fl.observe.align.layers import Layer
from torch_fl.observe.align.operators import Call, Op


@dataclass
class PrecisionChange:
    """What ``set_precision("high")`` does to one operator."""

    op: str
    dtype: str
    default_nmse: float
    high_nmse: float
    default_routes: list[str]
    high_routes: list[str]


@dataclass
class AlignReport:
    """The verdict on a model on a chip. ``print(report)`` says it in one line."""

    model: str
    device: str
    chip: str
    backward: bool
    ops: list[Op] = field(default_factory=list)  # in the order in which they were first called
    layers: list[Layer] = field(default_factory=list)  # in the order of execution
    calls: list[Call] = field(default_factory=list)
    precision: list[PrecisionChange] | None = None  # None: not compared
    notes: list[str] = field(default_factory=list)
    failure: str = ""  # what the model raised on the chip, but not on the CPU
    environment: list[dict[str, str]] = field(default_factory=list)  # section, name, value

    @property
    def ok(self) -> bool:
        """Whether every operator and every layer is as good as rounding allows."""
        bad = any(op.verdict.bad for op in self.ops) or any(layer.verdict.bad for layer in self.layers)
        return bool(self._judged) and not bad and not self.failure

    @property
    def _judged(self) -> list[Op]:
        return [op for op in self.ops if op.verdict is not Verdict.UNJUDGED]

    @property
    def wrong_ops(self) -> list[Op]:
        """The operators whose results rounding does not explain, in the order of execution."""
        return sorted((op for op in self.ops if op.verdict.bad), key=lambda op: (bool(op.probe), op.first))

    @property
    def first_op(self) -> Op | None:
        """The first diverging operator: on the model's own data, else by a probe."""
        return next(iter(self.wrong_ops), None)

    @property
    def first_layer(self) -> Layer | None:
        """The first layer that diverges by its own fault; of nested ones, the innermost."""
        for phase in ("forward", "backward"):
            bad = [layer for layer in self.layers if layer.phase == phase and layer.verdict.bad]
            innermost = [a for a in bad if not any(a.name != b.name and is_inside(b.name, a.name) for b in bad)]
            if innermost:
                return innermost[0]
        return None

    def conclusion(self) -> str:
        """Say in one line what diverges first, or that nothing does."""
        op, layer = self.first_op, self.first_layer
        if op is not None:
            how = f" (only with {op.probe})" if op.probe else ""
            site = f", called at {op.place.site}" if op.place.site else ""
            return f"first diverging: {op.op} {op.dtype} in {op.place}{how}: {op.reason}{site}"
        if self.failure:
            return f"the model raises on the chip: {self.failure}"
        if layer is not None:
            name = layer.name or "the model itself"
            return f"first diverging: layer {name} ({layer.kind}), {layer.phase}: {layer.judgement.reason}"
        if not self._judged:
            return "nothing was compared: the model calls no operator on the chip that can be judged"
        calls = counted(sum(op.calls for op in self._judged), "call")
        left = len(self.ops) - len(self._judged)
        rest = f"; {counted(left, 'operator')} could not be judged" if left else ""
        operators = counted(len(self._judged), "operator")
        return f"aligned: {calls} of {operators}, off the CPU's results by rounding alone{rest}"

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "model": self.model,
            "device": self.device,
            "chip": self.chip,
            "backward": self.backward,
            "ok": self.ok,
            "conclusion": self.conclusion(),
            "failure": self.failure,
            "first_op": self.first_op.as_dict() if self.first_op else None,
            "first_layer": self.first_layer.as_dict() if self.first_layer else None,
            "ladder": list(LADDER),
            "ops": [op.as_dict() for op in self.ops],
            "layers": [layer.as_dict() for layer in self.layers],
            "precision": None if self.precision is None else [asdict(change) for change in self.precision],
            "notes": self.notes,
            "environment": self.environment,
        }

    def to_json(self, path: str | Path) -> None:
        """Write `as_dict` to a file; infinity and NaN, which JSON lacks, are the texts ``"inf"`` and ``"nan"``."""
        write_whole(Path(path), _json.text(self.as_dict()) + "\n")

    def to_html(self, path: str | Path) -> None:
        """Write a page that stands alone."""
        from torch_fl.observe.align.page import render

        write_whole(Path(path), render(self))

    def __str__(self) -> str:
        return self.conclusion()


def is_inside(name: str, outer: str) -> bool:
    """Tell whether a module is a part of another, by their paths."""
    return name.startswith(f"{outer}.") if outer else bool(name)
