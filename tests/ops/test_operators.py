# SPDX-License-Identifier: Apache-2.0
"""Every OpInfo, ModuleInfo and OptimizerInfo: the device agrees with the CPU, with and without kernels of its own.

One test per entry and mode. The work is done once per mode by a pool of processes (see conftest.py), so `-k add` runs
just what it selects, and a crash of the device fails one test.
"""

from __future__ import annotations

import pytest

from tests.ops import catalogue
from tests.ops.exceptions import EXEMPTIONS
from tests.ops.report import lines_of
from tests.ops.session import MODES, Runs

ENTRIES = [task["name"] for task in catalogue.tasks()]


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("mode", MODES)
def test_agrees_with_cpu(mode: str, entry: str, runs: Runs) -> None:
    report = runs.report(mode)
    mine = [outcome for outcome in report.failures() if outcome.op == entry]
    assert not mine, "\n" + "\n".join(lines_of(mine))
    assert entry in report.results.calls, f"{entry} was not run to its end"


def test_the_catalogue_is_complete() -> None:
    """The suites cannot pass by running nothing: these are the counts of torch 2.13."""
    assert len(catalogue.ops()) >= 702
    assert sum(len(op.dtypes) for op in catalogue.ops()) >= 6121
    assert sum(len(op.supported_backward_dtypes("cpu")) for op in catalogue.ops()) >= 2731
    assert len(catalogue.modules()) >= 114
    assert len(catalogue.optimizers()) >= 15


def test_every_pair_was_checked(runs: Runs) -> None:
    """Each pair had at least one sample that the CPU accepts, apart from a handful PyTorch itself has none for."""
    if not runs.complete():
        pytest.skip("only with all entries selected")
    report = runs.report("normal")
    ran = {(o.op, o.dtype) for o in report.results.outcomes if o.variant == "forward"}
    wanted = {(task["name"], dtype) for task in catalogue.tasks(kinds=["op"]) for dtype in task["dtypes"]}
    # jiterator operators compile CUDA source: PyTorch's CPU refuses every sample.
    missing = sorted((op, dtype) for op, dtype in wanted - ran if not op.startswith("jiterator"))
    assert len(missing) <= 0.005 * len(wanted), f"no accepted sample for {missing}"


def test_exemptions_are_few_and_current(runs: Runs) -> None:
    if not runs.complete():
        pytest.skip("only with all entries selected")
    reports = [runs.report(mode) for mode in MODES]
    assert all(report.within_limit() for report in reports), "more than 1 % of the pairs are exempted"
    stale = [row for row in EXEMPTIONS if all(row in report.stale() for report in reports)]
    assert not stale, f"these rows excuse nothing; remove them: {stale}"


def test_every_exemption_names_an_entry_and_a_reason() -> None:
    for row in EXEMPTIONS:
        assert row.op in ENTRIES, f"unknown entry in {row}"
        assert len(row.reason) > 20, f"say why in {row}"
