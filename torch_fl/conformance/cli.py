# SPDX-License-Identifier: Apache-2.0
"""The command ``torch-fl check``."""

from __future__ import annotations

import enum
import os
from pathlib import Path
from typing import Annotated

import typer

_WIDTH = 160  # where no terminal tells
_ADDED = "TORCH_FL_ADD_PLUGIN_PATH"


class Mode(str, enum.Enum):
    """What to check."""

    test = "test"
    grad = "grad"
    perf = "perf"
    support = "support"


app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def check(
    chip: Annotated[str, typer.Argument(help="A chip's name, or the path of a plugin, a descriptor or a folder.")] = "",
    mode: Annotated[
        Mode,
        typer.Option(
            help="test: forward, in-place, out= and strided calls. grad: gradients. perf: times. support: which "
            "operators and types the chip accepts."
        ),
    ] = Mode.test,
    ops: Annotated[str, typer.Option(help='Patterns, comma-separated: "add.*,*pool*".')] = "",
    dtypes: Annotated[str, typer.Option(help='Element types, comma-separated: "float32,int64".')] = "",
    routes: Annotated[str, typer.Option(help="Routes that count as the chip's own.")] = "kernel,portable,override",
    quick: Annotated[bool, typer.Option("--quick", help="Fewer types and cases.")] = False,
    opinfo: Annotated[
        bool, typer.Option("--opinfo", help="Add PyTorch's own samples (needs expecttest, numpy).")
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 1,
    seed: Annotated[int, typer.Option(help="Of the arguments.")] = 0,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for one case.")] = 60.0,
    guards: Annotated[int, typer.Option(min=0, help="Guard bytes round every tensor; 0: none.")] = 64,
    csv: Annotated[Path | None, typer.Option(help="Write a CSV file.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write a report (JSON, and a page to sign beside it).")] = None,
    verify: Annotated[
        Path | None, typer.Option(metavar="REPORT", help="Only tell whether a report is as it was written.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show every operator.")] = False,
) -> None:
    """Run the conformance kit on a chip. Exit status 1 if an operator FAILED, 2 if the run could not start."""
    if verify is not None:
        raise typer.Exit(_verify(verify))
    if not chip:
        raise typer.BadParameter("name a chip, or the path of its plugin", param_hint="CHIP")
    from rich.console import Console

    from torch_fl.conformance import pool, run
    from torch_fl.conformance.verdict import Verdict

    path = chip if os.sep in chip or chip.endswith((".so", ".yaml", ".yml")) or Path(chip).is_file() else ""
    settings = pool.Settings(
        chip="" if path else chip,
        path=os.path.abspath(path) if path else "",
        mode=mode.value,
        routes=_routes(routes),
        ops=ops,
        dtypes=_dtypes(dtypes),
        jobs=jobs,
        seed=seed,
        timeout=timeout,
        quick=quick,
        opinfo=opinfo,
        guard_bytes=guards,
        environment=_with_path(path),
    )
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)
    try:
        rows = run.run(settings, run.Files(csv, report), console, verbose)
    except run.CheckError as error:
        typer.echo(f"check: {error}", err=True)
        raise typer.Exit(2) from None
    raise typer.Exit(int(any(row.verdict is Verdict.FAILED for row in rows)))


def _verify(file: Path) -> int:
    from torch_fl.conformance import report

    try:
        content = report.verify(file)
    except report.BadReport as error:
        typer.echo(f"check: {error}", err=True)
        return 1
    counts = ", ".join(f"{count} {verdict}" for verdict, count in content["summary"].items())
    typer.echo(f"{file}: unchanged; chip {content['chip']}, {content['date']}: {counts}")
    return 0


def _routes(text: str) -> tuple[str, ...]:
    known = ("kernel", "portable", "override", "decomposed", "host")
    words = _words(text)
    for word in words:
        if word not in known:
            raise typer.BadParameter(f"no route {word!r} (routes: {', '.join(known)})", param_hint="--routes")
    return words


def _dtypes(text: str) -> tuple[str, ...]:
    words = _words(text)
    if words:
        import torch

        for word in words:
            if not isinstance(getattr(torch, word, None), torch.dtype):
                raise typer.BadParameter(f"no element type {word!r}", param_hint="--dtypes")
    return words


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _with_path(path: str) -> dict[str, str]:
    if not path:
        return {}
    before = os.environ.get(_ADDED)
    return {_ADDED: os.pathsep.join(filter(None, [os.path.abspath(path), before]))}
