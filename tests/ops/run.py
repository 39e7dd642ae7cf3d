# SPDX-License-Identifier: Apache-2.0
"""Run the operator suite from the command line.

python -m tests.ops.run                                   everything, two processes
python -m tests.ops.run --ops add,mul --dtypes float32    some of it; patterns like 'linalg.*' work
python -m tests.ops.run --variants forward --max-samples 2 --json out.json
python -m tests.ops.run --policy deny                     what fails without the host
python -m tests.ops.run --emptiest                        sim without a single kernel
"""

from __future__ import annotations

import argparse
import os
import sys

from tests.ops import catalogue
from tests.ops.engine import FORWARD_VARIANTS, VARIANTS
from tests.ops.exceptions import exemption_for
from tests.ops.outcome import Outcome
from tests.ops.pool import Pool, Settings
from tests.ops.report import Report, lines_of

EMPTIEST = {"SIMCHIP_HIDE_KERNELS": "1"}


def _list(text: str) -> list[str]:
    return [item for item in text.split(",") if item]


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", type=_list, default=["*"], help="names or patterns, comma-separated")
    parser.add_argument("--kinds", type=_list, default=["op"], help=f"of {','.join(catalogue.KINDS)}")
    parser.add_argument("--dtypes", type=_list, default=[], help="like float32,int64; default all")
    parser.add_argument("--variants", type=_list, default=list(VARIANTS), help=f"of {','.join(VARIANTS)}")
    parser.add_argument("--max-samples", type=int, default=8, help="samples per (op, dtype)")
    parser.add_argument("--max-variant-samples", type=int, default=3, help="of them for method, out= and the like")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument(
        "--timeout", type=float, default=120.0, help="seconds without progress before a worker is ended"
    )
    parser.add_argument("--policy", choices=("allow", "warn", "deny"), default="allow", help="fallback policy")
    parser.add_argument("--emptiest", action="store_true", help="hide the kernels of sim")
    parser.add_argument("--device", help="device under test; default $TORCH_FL_TEST_DEVICE or fl")
    parser.add_argument("--json", help="write the report here")
    parser.add_argument("--quiet", action="store_true", help="no line per failure, only causes and figures")
    options = parser.parse_args(arguments)
    unknown = set(options.variants) - {*VARIANTS, "all-forward"}
    if unknown:
        parser.error(f"unknown variants {sorted(unknown)}; known: {', '.join(VARIANTS)}")
    return options


def settings_from(options: argparse.Namespace) -> Settings:
    environment = dict(EMPTIEST) if options.emptiest else {}
    if options.device:
        environment["TORCH_FL_TEST_DEVICE"] = options.device
    variants = list(FORWARD_VARIANTS) if "all-forward" in options.variants else options.variants
    return Settings(
        variants,
        options.max_samples,
        options.max_variant_samples,
        options.policy,
        options.jobs,
        options.timeout,
        environment,
    )


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    tasks = catalogue.tasks(options.ops, options.dtypes, options.kinds)
    if not tasks:
        print(f"no entry matches {options.ops}", file=sys.stderr)
        return 2
    done = 0

    def on_task(name: str, found: list[Outcome]) -> None:
        nonlocal done
        done += 1
        if not options.quiet:
            for line in lines_of(o for o in found if exemption_for(o.key) is None):
                print(line, flush=True)
        if sys.stderr.isatty() or done % 50 == 0:
            print(f"[{done}/{len(tasks)}] {name}", file=sys.stderr, flush=True)

    report = Report(Pool(settings_from(options), on_task).run(tasks))
    print("\n== causes ==\n" + (report.causes() or "none"))
    host = report.host_operators(25)
    if host:
        print("\n== operators that went to the host most ==\n" + ", ".join(f"{op} {n}" for op, n in host))
    print("\n== summary ==\n" + report.summary())
    if options.json:
        report.write(options.json)
    return 1 if report.failures() or report.stale() else 0


if __name__ == "__main__":
    sys.exit(main())
