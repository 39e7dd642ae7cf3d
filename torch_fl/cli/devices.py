# SPDX-License-Identifier: Apache-2.0
"""``torch-fl devices``."""

from __future__ import annotations

from dataclasses import asdict

from torch_fl.cli import output


def main(json: bool) -> None:
    """Print every device of every chip."""
    import torch_fl

    records = torch_fl.list_devices()
    if json:
        output.print_json([asdict(record) for record in records])
        return
    if not records:
        print("no device: `torch-fl doctor` says what became of every plugin")
        return
    columns = ("device", "chip", "name", "vendor", "driver", "memory", "units", "clock", "capabilities", "types")
    output.print_table(
        columns,
        (
            (
                record.device,
                record.chip,
                record.name,
                record.vendor,
                record.driver_version,
                f"{record.memory / 2**20:,.0f} MiB",
                record.compute_units or "?",
                f"{record.clock_mhz} MHz" if record.clock_mhz else "?",
                " ".join(record.capabilities),
                " ".join(record.dtypes),
            )
            for record in records
        ),
    )
