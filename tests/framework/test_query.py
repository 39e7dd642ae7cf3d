# SPDX-License-Identifier: Apache-2.0
"""torch_fl.query_op: what it takes for an operator."""

from __future__ import annotations

import pytest
import torch

import torch_fl


@pytest.mark.parametrize(
    ("op", "name"),
    [
        (torch.ops.aten.add.Tensor, "aten::add.Tensor"),
        (torch.ops.aten.add, "aten::add"),
        (torch.ops.aten.sinc.out, "sinc.out"),
    ],
)
def test_operators_of_torch_ops(op: object, name: str) -> None:
    answer = torch_fl.query_op(op)
    assert answer == torch_fl.query_op(name)
    assert answer.rows


def test_a_default_overload_is_one_overload() -> None:
    assert [row.overload for row in torch_fl.query_op(torch.ops.aten.sort.default).rows] == [""]
    assert len(torch_fl.query_op("aten::sort").rows) > 1


@pytest.mark.parametrize(
    ("op", "message"),
    [
        ("", "no operator '': expected a name such as"),
        (" ", "no operator ' ': expected a name such as"),
        (None, "no operator None: expected a name such as"),
        (3, "no operator 3: expected a name such as"),
        ("aten::add.", r"operator aten::add has no overload '' \(overloads: Tensor, "),
        ("aten::sort.int", "operator aten::sort has no overload 'int'"),  # TorchScript has one
        ("aten::len", "no operator 'aten::len'"),  # TorchScript's alone
    ],
)
def test_what_is_no_operator(op: object, message: str) -> None:
    with pytest.raises(torch_fl.ConfigError, match=message):
        torch_fl.query_op(op)
