# SPDX-License-Identifier: Apache-2.0
"""Code that makes a Python class a chip, and then asserts, in a process of its own."""

from __future__ import annotations

import textwrap

from tests.plugins.helpers import succeed

PRELUDE = """
import gc, os, threading
import numpy as np, torch, torch_fl

def chip(function=None, name="chip", **options):
    '''Registers a class whose dispatch() is `function`, and returns its first device.'''
    attributes = {k: options.pop(k) for k in ("operators", "supports", "memory", "init_runtime") if k in options}
    def init_runtime(self): pass
    def dispatch(self, op, tensors, params):
        return function(op, tensors, params)
    first = torch.fl.device_count()
    torch_fl.register_backend(name, **options)(
        type("Backend", (), {"init_runtime": init_runtime, "dispatch": dispatch, **attributes}))
    return f"fl:{first}"

def error_of(f, kind=Exception):
    try:
        f()
    except kind as error:
        return error
    raise AssertionError("expected an error")

def routes(op):
    return set(torch_fl.counters().where(op=op).by("route"))

def arrays(op, tensors, params):
    '''Three operators of numpy.'''
    a = [t.numpy() for t in tensors]
    if op == "aten::mm":
        return a[0] @ a[1]
    if op == "aten::add.Tensor":
        return a[0] + np.asarray(a[1] * params["alpha"], a[0].dtype)
    if op == "aten::relu":
        np.maximum(a[0], 0, out=params["out"][0].numpy())
        return params["out"]
"""


def check(code: str, **environment: str) -> str:
    """Run code that asserts, in a process of its own that must end cleanly."""
    return succeed(PRELUDE + textwrap.dedent(code), **environment)
