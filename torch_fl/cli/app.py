# SPDX-License-Identifier: Apache-2.0
"""The commands and their options. What a command does is in a module of its own, imported when it runs."""

from __future__ import annotations

import enum
import shlex
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class EndsAtProgram(typer.core.TyperCommand):
    """Options, then a program whose own options are left alone: ``-m MODULE`` ends ours, as it does Python's."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Mark where the program begins."""
        from torch_fl.cli import run

        return super().parse_args(ctx, run.marked(args))


Program = Annotated[list[str] | None, typer.Argument(metavar="SCRIPT.py [ARGS]", show_default=False)]
Module = Annotated[str | None, typer.Option("-m", metavar="MODULE", help="Run a module instead, as python -m does.")]
Deny = Annotated[bool, typer.Option("--deny", help="Refuse calls that would leave the chip.")]
AliasCuda = Annotated[bool, typer.Option("--alias-cuda", help="Let cuda mean fl, for scripts that say cuda.")]

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class Kind(str, enum.Enum):
    """Ways in for a chip."""

    yaml = "yaml"
    c = "c"
    compiler = "compiler"
    python = "python"


class Normalize(str, enum.Enum):
    """What `compare` takes out of every time."""

    cases = "cases"
    cpu = "cpu"
    none = "none"


def _version(wanted: bool) -> None:
    if wanted:
        from torch_fl import __version__

        print(__version__)
        raise typer.Exit


@app.callback(invoke_without_command=True)
def overview(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Chips behind PyTorch's device fl. Without a command: print the devices, and what became of every plugin."""
    if context.invoked_subcommand is None:
        from torch_fl.cli import overview

        raise typer.Exit(overview.main())


@app.command()
def devices(json: Json = False) -> None:
    """List the devices of all chips."""
    from torch_fl.cli import devices

    devices.main(json)


@app.command()
def doctor(json: Json = False) -> None:
    """Look for what is wrong: versions, plugins, environment, settings, cache. Exit status 1 if something is."""
    from torch_fl.cli import doctor

    raise typer.Exit(doctor.main(json))


@app.command()
def ops(
    chip: Annotated[str | None, typer.Option(help="Only this chip.")] = None,
    filter: Annotated[str | None, typer.Option(help="Only operators whose name contains this.")] = None,
    missing: Annotated[
        Path | None, typer.Option(metavar="MODEL.py", help="Run a script, and list the operators that left the chip.")
    ] = None,
    json: Json = False,
) -> None:
    """List the operators that each chip has, by route; or those that a script misses."""
    from torch_fl.cli import ops

    if missing is not None:
        raise typer.Exit(ops.missing(missing, chip, filter, json))
    ops.main(chip, filter, json)


@app.command(cls=EndsAtProgram, context_settings={"allow_interspersed_args": False})
def run(
    program: Program = None,
    module: Module = None,
    alias_cuda: AliasCuda = False,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="Create tensors here whose device the script does not name.")
    ] = None,
    deny: Deny = False,
    profile: Annotated[
        str | None,
        typer.Option(metavar="", help="[=FILE] Record every call: *.jsonl, else a Chrome trace (torch-fl-trace.json)."),
    ] = None,
    summary: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the summary there, too, as JSON.")] = None,
) -> None:
    """Run a script unchanged; at its end, tell on stderr what ran on the chip and what left it."""
    from torch_fl.cli import run

    run.main(run.words(program, module), alias_cuda, device, deny, profile, summary)


@app.command()
def report(
    what: Annotated[
        list[str] | None, typer.Argument(metavar="SCRIPT.py|MODULE:CALLABLE [-- ARGS]", show_default=False)
    ] = None,
    module: Module = None,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The page.")] = Path("report.html"),
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the data, too.")] = None,
    alias_cuda: AliasCuda = False,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="Where to run; default: the preferred device.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Of a model: forward and backward passes to record.")] = 3,
) -> None:
    """Run a script or a model, and write one page: what left the chip, why, its cost, what to implement first."""
    from torch_fl.cli import report

    raise typer.Exit(report.main(what, module, output, json, alias_cuda, device, steps))


@app.command()
def align(
    model: Annotated[str, typer.Argument(metavar="MODULE:CALLABLE|FILE.py:CALLABLE", show_default=False)],
    inputs: Annotated[
        list[str] | None,
        typer.Option(metavar="SHAPE[:DTYPE[:BELOW]]", help="An input: 2x3x32x32, 4x16:int64:1000; repeatable."),
    ] = None,
    device: Annotated[str, typer.Option(metavar="NAME", help="The chip's device.")] = "fl:0",
    backward: Annotated[bool, typer.Option(help="Compare gradients, too.")] = True,
    probe: Annotated[bool, typer.Option(help="Also try other data, sizes and layouts.")] = True,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write a page.", show_default=False)
    ] = None,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the report as JSON; - is stdout.")
    ] = None,
) -> None:
    """Compare a model on a chip with the CPU, by layer and operator. Exit status 1 if a result is wrong."""
    from torch_fl.cli import align

    raise typer.Exit(align.main(model, inputs or [], device, backward, probe, output, json))


@app.command()
def validate(files: Annotated[list[Path], typer.Argument(metavar="FILE...")], json: Json = False) -> None:
    """Check descriptors. Exit status 1 if one has mistakes."""
    from torch_fl.cli import descriptors

    raise typer.Exit(descriptors.validate(files, json))


@app.command()
def schema() -> None:
    """Print the JSON Schema of descriptors, for editors."""
    from torch_fl.cli import descriptors

    descriptors.print_schema()


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="The chip's name.")],
    kind: Annotated[Kind, typer.Option(help="What the chip joins through.")] = Kind.c,
    path: Annotated[
        Path | None, typer.Option(help="The folder to make; default: torch-fl-backend-NAME.", show_default=False)
    ] = None,
) -> None:
    """Write a plugin project, which builds, tests and installs as torch-fl-backend-NAME."""
    from torch_fl.cli import naming, project

    names = naming.checked(name)
    folder = path or Path(names.distribution)
    for file in project.create(names, kind.value, folder):
        print(file)
    print(f"\nNext: torch-fl build {folder}")


@app.command()
def build(
    folder: Annotated[Path | None, typer.Argument(metavar="[DIR]", help="Default: the project here.")] = None,
) -> None:
    """Compile a plugin project; the library lands beside its package."""
    from torch_fl.cli import build

    project = build.find(folder)
    plugins = build.build(project)
    for plugin in plugins:
        print(plugin)
    print("\nTo use it without installing:" if plugins else "There is nothing to compile.")
    if plugins:
        print(f"  export TORCH_FL_ADD_PLUGIN_PATH={shlex.quote(str(project.package_folder.resolve()))}")
    print(f"  torch-fl check {project.chip} --path {shlex.quote(str(project.folder))}")


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
def check(context: typer.Context) -> None:
    """Run the conformance kit on a chip. --path DIR: the chip of the project in DIR, built but not installed."""
    from torch_fl.cli import developing

    words = developing.prepare(context.args)
    from torch_fl.conformance import cli as conformance  # after prepare(), which says where chips are

    conformance.app(args=words, prog_name="torch-fl check")


@app.command()
def bench(
    model: Annotated[
        str, typer.Argument(metavar="[MODEL]", help="pkg.module:callable or file.py:callable; default: the set.")
    ] = "",
    set: Annotated[
        str, typer.Option(help="standard, quick, or groups and patterns of cases: quick,matmul,operators/*pool*.")
    ] = "standard",
    device: Annotated[str, typer.Option(help="The device.")] = "fl:0",
    repeats: Annotated[int, typer.Option(min=1, help="Rounds, all processes together.")] = 32,
    processes: Annotated[int, typer.Option(min=1, help="Processes that share the rounds.")] = 8,
    cpu: Annotated[bool, typer.Option(" /--no-cpu", help="Leave out the CPU, which is there for scale.")] = True,
    file: Annotated[Path | None, typer.Option("-o", "--output", help="Write the results, with every sample.")] = None,
    json: Json = False,
) -> None:
    """Measure kernels, end-to-end times, share of the host, copies, memory. Exit status 1 if a case failed."""
    from torch_fl.cli import bench
    from torch_fl.observe.baseline import Options

    options = Options(model=model, set=set, device=device, repeats=repeats, processes=processes, cpu=cpu)
    raise typer.Exit(bench.main(options, file, json))


@app.command()
def compare(
    before: Annotated[Path, typer.Argument(help="Results of bench, a report of check, or data of report.")],
    after: Annotated[Path, typer.Argument(help="The same of another build, driver or day.")],
    normalize: Annotated[
        Normalize, typer.Option(help="Take out of every time: the median of all cases, a loop of the CPU, nothing.")
    ] = Normalize.cases,
    alpha: Annotated[float, typer.Option(min=1e-6, max=0.5, help="Chance of a false alarm about speed.")] = 0.02,
    min_effect: Annotated[float, typer.Option(min=0.0, help="Smaller changes of time do not count: 0.05.")] = 0.05,
    fail_on: Annotated[
        str, typer.Option(help="What makes the exit status 1: operator,route,accuracy,speed,case; or nothing.")
    ] = "operator,route,accuracy,speed,case",
    every: Annotated[bool, typer.Option("--all", help="Show the times of every case.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown, for comments of a CI.")] = False,
    json: Json = False,
) -> None:
    """Compare two runs: operators, routes, accuracy, speed. Exit status 1: something is worse; 2: unusable files."""
    from torch_fl.cli import compare
    from torch_fl.observe.compare import options

    chosen = options.Options(options.Normalize(normalize.value), alpha, min_effect)
    form = "json" if json else "markdown" if markdown else "tables"
    raise typer.Exit(compare.main(before, after, chosen, fail_on, form, every))


@app.command()
def include() -> None:
    """Print the folder of torch_fl/fl_plugin.h, for compilers."""
    from torch_fl.cli import build

    print(build.include_folder())
