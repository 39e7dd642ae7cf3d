# SPDX-License-Identifier: Apache-2.0
"""The report: JSON with a checksum, CSV, and a page for people to sign."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from torch_fl import _json
from torch_fl._files import write_whole
from torch_fl.conformance.verdict import Row, Verdict

FORMAT = "torch-fl conformance report 1"
CSV_COLUMNS = "op dtype mode verdict reason case cases routes nmse bound chip_us cpu_us gb_per_s gflop_per_s".split()


def canonical(content: Any) -> bytes:
    """Return JSON as the checksum sees it: keys sorted, no spaces, ASCII."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def checksum(content: Any) -> str:
    """Return the SHA-256 of the canonical form."""
    return hashlib.sha256(canonical(content)).hexdigest()


def make(chip: str, environment: Mapping[str, Any], options: Mapping[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    """Return a report: its content, and the checksum over it."""
    content = {
        "format": FORMAT,
        "chip": chip,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "versions": versions(environment),
        "device": _json.finite(environment["device"]),
        "files": [{"path": item["path"], "sha256": _digest(item["path"])} for item in environment["plugins"]],
        "options": dict(options),
        "summary": summary(rows),
        "operators": [_json.finite(row.as_dict()) for row in sorted(rows, key=lambda row: (row.op, row.dtype))],
    }
    return {"content": content, "sha256": checksum(content)}


def versions(environment: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions of everything that took part."""
    import torch

    import torch_fl

    device = environment["device"]
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_fl": torch_fl.__version__,
        "plugin": device["plugin_version"],
        "driver": device["driver_version"],
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def summary(rows: Iterable[Row]) -> dict[str, int]:
    """Return the number of rows for each verdict."""
    found = Counter(row.verdict for row in rows)
    return {verdict.value: found[verdict] for verdict in Verdict if found[verdict]}


def _digest(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        return f"unreadable: {error.strerror}"


def write(report: Mapping[str, Any], file: Path) -> list[Path]:
    """Write the report as JSON and, beside it, as a page for people. Return the files."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps(report, sort_keys=True, indent=1, ensure_ascii=True, allow_nan=False) + "\n")
    page = file.with_suffix(".md")
    write_whole(page, render(report))
    return [file, page]


def write_csv(rows: Iterable[Row], file: Path) -> None:
    """Write one line for each operator and type."""
    file.parent.mkdir(parents=True, exist_ok=True)
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, CSV_COLUMNS)
    writer.writeheader()
    for row in sorted(rows, key=lambda row: (row.op, row.dtype)):
        values = row.as_dict()
        values["routes"] = " ".join(f"{route}:{count}" for route, count in row.routes.items())
        writer.writerow(values)
    write_whole(file, stream.getvalue())


class BadReport(ValueError):
    """A file that is no report, or was changed."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that stands twice: the checksum is that of the last."""
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)


def verify(file: Path) -> dict[str, Any]:
    """Return the content of a report whose checksum is right; raises BadReport."""
    try:
        report = json.loads(file.read_text(), object_pairs_hook=_once)
        content, claimed = report["content"], report["sha256"]
        found = checksum(content)
        if not isinstance(content, dict) or set(report) != {"content", "sha256"}:
            raise ValueError("expected an object of content and sha256, and nothing else")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadReport(f"{file}: not a conformance report ({type(error).__name__}: {error})") from None
    if content.get("format") != FORMAT:
        raise BadReport(f"{file}: expected the format {FORMAT!r}, found {content.get('format')!r}")
    if found != claimed:
        text = f"{file}: the content was changed after the run: expected SHA-256 {claimed}, found {found}"
        raise BadReport(text)
    return dict(content)


def render(report: Mapping[str, Any]) -> str:
    """Return the page for people: what was run, the verdicts, and a block for signatures."""
    content = report["content"]
    device = content["device"]
    lines = [f"# Conformance report: {content['chip']}", ""]
    lines += [f"{device['name']} ({device['vendor']}), {content['date']}", ""]
    lines += ["| | |", "|---|---|"]
    lines += [f"| {key} | {value} |" for key, value in content["versions"].items()]
    lines += [f"| {file['path']} | SHA-256 {file['sha256']} |" for file in content["files"]]
    lines += [f"| options | {_words(content['options'])} |"]
    lines += [f"| {verdict} | {count} |" for verdict, count in content["summary"].items()]
    lines += ["", "STRICT, BASIC, FAILED and UNTESTED are defined in docs/conformance.md of torch-fl.", ""]
    lines += _verdicts(content["operators"])
    lines += ["", f"SHA-256 of the content: `{report['sha256']}`", ""]
    lines += ["Check it with `torch-fl check --verify FILE.json`.", "", "## Signature", ""]
    lines += [f"{word}: ______________________________\n" for word in ("Name", "Date", "Signature")]
    return "\n".join(lines)


def _words(options: Mapping[str, Any]) -> str:
    shown = {key: " ".join(value) if isinstance(value, list | tuple) else value for key, value in options.items()}
    return ", ".join(f"{key}={value}" for key, value in shown.items() if value is not False and value != "")


def _verdicts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = ["| operator | type | verdict | cases | reason |", "|---|---|---|---|---|"]
    for row in rows:
        reason = str(row["reason"]).replace("|", "\\|").replace("\n", " ")
        lines.append(f"| {row['op']} | {row['dtype']} | {row['verdict']} | {row['cases']} | {reason} |")
    return lines
