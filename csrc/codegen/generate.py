# SPDX-License-Identifier: Apache-2.0
"""Writes the trampolines for the installed torch: one row for each aten overload that a backend may provide.

Sources of truth, all inside the installed wheel: the dispatcher's registry (which overloads exist, which kernels
PyTorch has for them), the operator headers (the C++ type of each overload) and the meta headers (the C++ shape rules).
"""

from __future__ import annotations

import argparse
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import torch
import torchgen

SHARDS = 8  # files that the build expects
ROWS_PER_SHARD = 100  # at least: few rows share one file, for a file's headers cost more than its rows

# Implemented by hand in csrc/torch (minimum operators, random operators, convolution, ...).
BY_HAND = {
    "aten::" + name
    for name in (
        "empty.memory_format empty_strided as_strided view _reshape_alias unfold view_as_real view_as_complex resize_ "
        "_copy_from _copy_from_and_resize _local_scalar_dense set_.source_Tensor set_.source_Storage "
        "set_.source_Storage_storage_offset set_ is_set_to record_stream uniform_ normal_ exponential_ "
        "cauchy_ geometric_ log_normal_ normal.Tensor_float normal.Tensor_float_out normal.float_Tensor "
        "normal.float_Tensor_out normal.Tensor_Tensor normal.Tensor_Tensor_out rrelu_with_noise "
        "bernoulli_.float "
        "random_ random_.from random_.to native_dropout bernoulli.out convolution convolution_backward "
        "convolution_overrideable convolution_backward_overrideable _has_compatible_shallow_copy_type copy_ "
        "_fused_sdp_choice zero_ _efficientzerotensor _pin_memory is_pinned equal _unique _unique2 unique_dim "
        "unique_consecutive unique_dim_consecutive histc histc.out histogram.bin_ct histogram.bin_ct_out "
        "histogram.bins_tensor histogram.bins_tensor_out _histogramdd_bin_edges _histogramdd_from_bin_cts "
        "_histogramdd_from_bin_tensors multinomial multinomial.out bernoulli_.Tensor"
    ).split()
}

PLAIN_TYPES = {
    "const at::Tensor &", "at::Tensor &", "const ::std::optional<at::Tensor> &", "const at::Scalar &",
    "const ::std::optional<at::Scalar> &", "int64_t", "bool", "double", "c10::SymInt", "at::IntArrayRef",
    "c10::SymIntArrayRef", "at::OptionalIntArrayRef", "at::OptionalSymIntArrayRef", "::std::optional<int64_t>",
    "::std::optional<c10::SymInt>", "::std::optional<double>", "::std::optional<bool>", "at::TensorList",
    "const at::ITensorListRef &", "const c10::List<::std::optional<at::Tensor>> &", "at::ArrayRef<at::Scalar>",
    "::std::optional<at::ArrayRef<double>>", "at::ArrayRef<double>", "c10::string_view",
    "::std::optional<c10::string_view>", "at::ScalarType", "::std::optional<at::ScalarType>",
    "::std::optional<at::Layout>", "::std::optional<at::Device>", "at::Device", "::std::optional<at::MemoryFormat>",
    "at::MemoryFormat", "::std::optional<at::Generator>", "at::Layout",
}  # fmt: skip
RETURN_TYPES = re.compile(
    r"^(void|bool|int64_t|double|at::Scalar|at::ScalarType|at::Tensor( &)?|::std::vector<at::Tensor>"
    r"|::std::tuple<.*>)$"
)


@dataclass(frozen=True)
class Operator:
    """One overload as its header declares it."""

    struct: str
    name: str
    header: str
    returns: str
    arguments: tuple[str, ...]

    @property
    def signature(self) -> str:
        return f"{self.returns}({','.join(self.arguments)})"


def split_arguments(text: str) -> tuple[str, ...]:
    """Splits at commas that are not inside angle brackets or parentheses."""
    parts, depth, current = [], 0, ""
    for char in text:
        depth += char in "<(" and 1 or 0
        depth -= char in ">)" and 1 or 0
        if char == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += char
    if current.strip():
        parts.append(current.strip())
    return tuple(parts)


STRUCT = re.compile(
    r"struct TORCH_API (\w+) \{\s*using schema = (.*?);.*?"
    r'name = "([^"]*)";.*?overload_name = "([^"]*)";',
    re.DOTALL,
)
META = re.compile(r"TORCH_API (.*?) (\w+)\((.*)\);")


def parse_schema(text: str) -> tuple[str, tuple[str, ...]]:
    """`at::Tensor (const at::Tensor &, bool)` -> return type, argument types."""
    depth = 0
    for i, char in enumerate(text):
        depth += (char == "<") - (char == ">")
        if char == "(" and depth == 0:
            return text[:i].strip(), split_arguments(text[i + 1 : text.rindex(")")])
    raise ValueError(f"expected a function type, found {text!r}")


def read_operators(include: Path) -> dict[str, Operator]:
    """Every aten overload that has a typed operator struct, by its dispatcher name."""
    operators = {}
    for header in sorted(include.glob("*_ops.h")):
        for struct, schema, name, overload in STRUCT.findall(header.read_text()):
            if not name.startswith("aten::"):
                continue
            full = f"{name}.{overload}" if overload else name
            returns, arguments = parse_schema(" ".join(schema.split()))
            operators[full] = Operator(struct, full, header.name, returns, arguments)
    return operators


def exported_metas(library: Path) -> set[str]:
    """Names of the at::meta functions that the installed library really has; the headers declare more."""
    symbols = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True)
    return {name[: int(length)] for length, name in re.findall(r"_ZN2at4meta(\d+)(\w+)", symbols.stdout)}


def structured_operators(yaml: Path) -> set[str]:
    """Overloads whose at::meta function is a pure shape rule; the others' may be their CPU kernel and touch data."""
    found, current = set(), ""
    for line in yaml.read_text().splitlines():
        if match := re.match(r"- func: ([\w.]+)\(", line):
            current = "aten::" + match[1]
        elif re.match(r"\s+structured(_delegate)?:", line):
            found.add(current)
    return found


def parameter_type(parameter: str) -> str:
    """`int64_t dim=0` -> `int64_t`."""
    parameter = parameter.split("=")[0].strip()
    return re.sub(r"\s*\b\w+$", "", parameter).strip()


def read_metas(include: Path, exported: set[str]) -> dict[str, list[tuple[str, str, str]]]:
    """C++ shape rules by base name: (function, header, signature)."""
    metas: dict[str, list[tuple[str, str, str]]] = {}
    for header in sorted(include.glob("*_meta_dispatch.h")):
        base = header.name.removesuffix("_meta_dispatch.h")
        for returns, function, parameters in META.findall(header.read_text()):
            if function not in exported:
                continue
            types = tuple(parameter_type(p) for p in split_arguments(parameters))
            metas.setdefault(base, []).append((function, header.name, f"{returns}({','.join(types)})"))
    return metas


def meta_of(op: Operator, metas: dict[str, list[tuple[str, str, str]]]) -> tuple[str, str] | None:
    """The meta function with exactly this overload's type: (function, header)."""
    base = op.header.removesuffix("_ops.h")
    name = op.name.removeprefix("aten::").split(".")[0]
    wanted = {name, name + "_symint", name + "_outf", name + "_symint_outf"}
    for function, header, signature in metas.get(base, []):
        if function in wanted and signature == op.signature:
            return function, header
    return None


def is_view(schema: torch._C.FunctionSchema) -> bool:
    return any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)


def has_kernel(name: str, key: str) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, key))


def packable(op: Operator) -> bool:
    arguments = all(t in PLAIN_TYPES or re.fullmatch(r"::std::array<bool,\d>", t) for t in op.arguments)
    tensors = any("Tensor" in t for t in op.arguments)
    return arguments and tensors and RETURN_TYPES.match(op.returns) is not None


def wanted(op: Operator, schema: torch._C.FunctionSchema) -> bool:
    if op.name in BY_HAND or has_kernel(op.name, "CompositeImplicitAutograd"):
        return False
    if op.returns == "at::Tensor &" and "at::Tensor &" not in op.arguments:
        return False
    if is_generated_out(op.name, schema):
        return False
    return packable(op) and not is_view(schema)


def has_out(schema: torch._C.FunctionSchema) -> bool:
    return any(a.is_out for a in schema.arguments)


def is_generated_out(name: str, schema: torch._C.FunctionSchema) -> bool:
    """An out= form that PyTorch generates: it calls the functional one and copies."""
    return has_out(schema) and is_composite(name, schema) and not has_kernel(name, "CPU")


def is_composite(name: str, schema: torch._C.FunctionSchema) -> bool:
    """PyTorch can run it without us: install a trampoline only where a chip has a kernel."""
    if has_kernel(name, "CompositeExplicitAutograd"):
        return True
    if has_kernel(name, "CPU"):
        return False
    # Without a CPU kernel this is not a structured operator's wrapper but a composition of views and copies.
    return not has_out(schema) or not has_kernel(name, "CompositeExplicitAutogradNonFunctional")


def schemas() -> dict[str, torch._C.FunctionSchema]:
    found = {}
    for schema in torch._C._jit_get_all_schemas():
        found[schema.name + ("." + schema.overload_name if schema.overload_name else "")] = schema
    return found


@dataclass(frozen=True)
class Row:
    op: Operator
    meta: tuple[str, str] | None
    composite: bool

    def text(self) -> str:
        struct = f"at::_ops::{self.op.struct}"
        meta = "NoMeta"
        if self.meta is not None:
            meta = f"Meta<static_cast<{struct}::ptr_schema>(&at::meta::{self.meta[0]})>"
        name = self.op.name.removeprefix("aten::")
        return f'    {{"{name}", &install<{struct}, {meta}>, {str(self.composite).lower()}}},'


def write_if_changed(path: Path, text: str) -> None:
    """An untouched file is not compiled again."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def write_shard(path: Path, index: int, rows: list[Row]) -> None:
    if not rows:
        write_if_changed(path, "// Generated by csrc/codegen/generate.py. Nothing is left for this file.\n")
        return
    headers = sorted({r.op.header for r in rows} | {r.meta[1] for r in rows if r.meta is not None})
    lines = ["// Generated by csrc/codegen/generate.py. Do not edit."]
    lines += ['#include "trampoline.h"', '#include "tables.h"', ""]
    lines += [f"#include <ATen/ops/{h}>" for h in headers]
    lines += ["", "namespace torch_fl::glue {", f"extern const TrampolineRow kShard{index}[] = {{"]
    lines += [r.text() for r in rows]
    lines += ["};", f"extern const size_t kShard{index}Size = {len(rows)};", "}  // namespace torch_fl::glue", ""]
    write_if_changed(path, "\n".join(lines))


def write_tables(out: Path, shards: int) -> None:
    header = [
        "// Generated by csrc/codegen/generate.py. Do not edit.",
        "#pragma once",
        "#include <cstddef>",
        "#include <vector>",
        "namespace torch_fl::glue {",
        "struct TrampolineRow;",
        *(f"extern const TrampolineRow kShard{i}[];\nextern const size_t kShard{i}Size;" for i in range(shards)),
        "std::vector<const TrampolineRow*> all_trampolines();",
        "}  // namespace torch_fl::glue",
        "",
    ]
    write_if_changed(out / "tables.h", "\n".join(header))
    body = [
        "// Generated by csrc/codegen/generate.py. Do not edit.",
        '#include "tables.h"',
        '#include "trampoline.h"',
        "namespace torch_fl::glue {",
        "std::vector<const TrampolineRow*> all_trampolines() {",
        "  std::vector<const TrampolineRow*> rows;",
        *(f"  for (size_t i = 0; i < kShard{i}Size; ++i) rows.push_back(&kShard{i}[i]);" for i in range(shards)),
        "  return rows;",
        "}",
        "}  // namespace torch_fl::glue",
        "",
    ]
    write_if_changed(out / "tables.cpp", "\n".join(body))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the generated sources")
    parser.add_argument("--overloads", default=".*", help="regular expression; other overloads go without (boxed)")
    arguments = parser.parse_args()
    out = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    include = Path(torch.__file__).parent / "include" / "ATen" / "ops"
    exported = exported_metas(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")
    operators, metas, known = read_operators(include), read_metas(include, exported), schemas()
    structured = structured_operators(Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml")
    rows = []
    for name, op in sorted(operators.items()):
        chosen = re.fullmatch(arguments.overloads, name.removeprefix("aten::"))
        if chosen and name in known and wanted(op, known[name]):
            meta = meta_of(op, metas) if name in structured else None
            # The router sees every out=: composites do not check where it lives.
            rows.append(Row(op, meta, is_composite(name, known[name]) and not has_out(known[name])))
    shards = min(SHARDS, -(-len(rows) // ROWS_PER_SHARD))
    for index in range(SHARDS):
        write_shard(out / f"trampolines_{index}.cpp", index, rows[index::shards] if index < shards else [])
    write_tables(out, shards)
    with_meta = sum(r.meta is not None for r in rows)
    print(f"{len(rows)} trampolines, {with_meta} with a C++ shape rule, {sum(r.composite for r in rows)} composite")


if __name__ == "__main__":
    main()
