# SPDX-License-Identifier: Apache-2.0
"""Reports that nobody had to run anything for, with all that a page must cope with."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from torch_fl.observe.report.advice import fix
from torch_fl.observe.report.data import Candidate, Fact, Report, Row, Share, Timeline

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">'\"&{{7*7}}"
OPERATORS = (
    *("aten::index_select", "aten::_embedding_bag_per_sample_weights_backward.out", "aten::sort.values_stable"),
    *("aten::grid_sampler_3d", "aten::multinomial", "aten::unique_consecutive", "aten::cummax"),
)
KERNELS = ("aten::mm", "aten::addmm", "aten::add.Tensor", "aten::_softmax", "aten::native_layer_norm", "aten::gelu")


def row(op: str, route: str, cost_ns: int, **more: object) -> Row:
    """Return a row with the rest made up."""
    on_host = route == "host"
    known = {
        "op": op,
        "chip": "sim",
        "device": 0,
        "route": route,
        "reason": f"the chip has no kernel for {op}" if on_host else "",
        "site": "examples/training/train_transformer.py:214 (encode_batch)",
        "layer": "encoder.layers.11.self_attention.output_projection",
        "backward": False,
        "calls": 120,
        "failed": 0,
        "bytes": cost_ns if on_host else 0,
        "syncs": 120 if on_host else 0,
        "cost_ns": cost_ns,
        "wait_ns": cost_ns // 3 if on_host else 0,
        "copy_ns": cost_ns // 2 if on_host else 0,
        "compute_ns": cost_ns // 3 if on_host else 0,
        "device_ns": 0 if on_host else cost_ns,
    }
    return Row(**{**known, **more})  # type: ignore[arg-type]


def candidate(op: str, gain_ns: float, wall_ns: int, reason: str = "") -> Candidate:
    reason = reason or f"the chip has no kernel for {op}"
    return Candidate(
        op=op,
        chip="sim",
        device=0,
        reason=reason,
        fix=fix(op, reason),
        calls=1200,
        bytes=int(gain_ns),
        syncs=1200,
        copy_ns=int(gain_ns / 2),
        compute_ns=int(gain_ns / 3),
        wait_ns=int(gain_ns / 4),
        now_ns=gain_ns * 1.1,
        kernel_ns=gain_ns * 0.1,
        gain_ns=gain_ns,
        gain_share=gain_ns / wall_ns,
        where="encoder.layers.11.self_attention · examples/training/train_transformer.py:214 (encode_batch)",
    )


def sample(host: bool = True, hostile: bool = False, layers: int = 12, groups: int = 200) -> Report:
    """Return a report of a run with fallbacks, or without any."""
    chance, wall = random.Random(0), 1_843_000_000
    operators = [HOSTILE, "aten::größe_选择_🧊"] if hostile else list(OPERATORS)
    fallbacks = [
        row(
            op,
            "host",
            int(40_000_000 / (1 + i * i) * chance.random() ** 2) + 900,
            layer=HOSTILE if hostile else f"encoder.layers.{layer}.self_attention" if layer else "",
            site=HOSTILE if hostile else f"examples/training/train_transformer.py:{100 + 7 * layer} (encode_batch)",
            backward=layer % 4 == 3,
        )
        for i, op in enumerate(operators)
        for layer in range(layers)
        if chance.random() < 0.8
    ]
    kernels = [row(chance.choice(KERNELS), "kernel", chance.randrange(50_000, 9_000_000)) for _ in range(groups)]
    kernels += [row("aten::gelu", "portable", 3_000_000, reason="the chip has no kernel for aten::gelu")]
    if not host:
        fallbacks = []
    groups_ = sorted([*fallbacks, *kernels], key=lambda one: -one.cost_ns)
    shares = [
        Share(route, sum(r.calls for r in rows), sum(r.cost_ns for r in rows))
        for route in ("kernel", "portable", "host")
        if (rows := [r for r in groups_ if r.route == route])
    ]
    ops = dict.fromkeys(one.op for one in fallbacks)
    gains = {op: sum(one.cost_ns for one in fallbacks if one.op == op) for op in ops}
    bins = 120
    wave = [0.5 + 0.4 * math.sin(i / 5) for i in range(bins)]
    chip = [share for share in shares if share.route != "host"]
    return Report(
        title=HOSTILE if hostile else "examples/training/train_transformer.py --epochs 3",
        created="2026-01-01T12:00:00+00:00",
        wall_ns=wall,
        calls=sum(share.calls for share in shares),
        dropped=0,
        device_times=True,
        on_chip_calls=sum(share.calls for share in chip) / sum(share.calls for share in shares),
        on_chip_time=sum(share.time_ns for share in chip) / sum(share.time_ns for share in shares),
        host_ns=sum(one.cost_ns for one in fallbacks),
        host_calls=sum(one.calls for one in fallbacks),
        host_bytes=sum(one.bytes for one in fallbacks),
        syncs=sum(one.syncs for one in fallbacks),
        wait_ns=sum(one.wait_ns for one in fallbacks),
        peak_bytes=734_003_200,
        routes=shares,
        candidates=sorted((candidate(op, gains[op], wall) for op in ops), key=lambda one: -one.gain_ns),
        fallbacks=sorted(fallbacks, key=lambda one: -one.cost_ns),
        groups=groups_,
        groups_left=3,
        groups_left_ns=120_000,
        memory={"fl:0": [(i * 15.0, int(5e8 + 2e8 * math.sin(i / 9))) for i in range(bins)]},
        timeline=Timeline(
            bin_ns=wall / bins,
            launching=[0.25 * w for w in wave],
            host_operators=[0.4 * (1 - w) if host else 0.0 for w in wave],
            waiting=[0.3 * (1 - w) if host else 0.0 for w in wave],
            devices={"fl:0": wave},
        ),
        environment=[
            Fact("versions", "torch-fl", "0.1.0"),
            Fact("versions", "torch", "2.13.0+cpu"),
            Fact("devices", "fl:0", "sim: Simulated NPU (Example Chips), 4,096 MiB, driver simchip 1.0"),
            Fact(
                "plugins",
                "loaded",
                "/opt/venv/lib/python3.11/site-packages/torch_fl/chips/sim/libfl_sim.so  [built-in]",
            ),
            Fact("settings", "fallback", HOSTILE if hostile else "warn (from TORCH_FL_FALLBACK)"),
        ],
        notes=[HOSTILE] if hostile else [],
        failure=HOSTILE if hostile else "",
    )


def nothing() -> Report:
    """Return a report of a program that used no device."""
    empty = sample(host=False, groups=0)
    return replace(
        empty, calls=0, routes=[], groups=[], memory={}, groups_left=0, timeline=Timeline(), on_chip_calls=0.0,
        on_chip_time=0.0, peak_bytes=0, device_times=False,
    )  # fmt: skip
