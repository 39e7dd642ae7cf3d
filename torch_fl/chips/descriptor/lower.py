# SPDX-License-Identifier: Apache-2.0
"""From a descriptor to the plain values that the core takes (csrc/torch/describe.cpp).

Names of arguments are resolved against the schema of the operator that this PyTorch has, expressions become programs,
constraints become checks and flags. Every mistake is collected with its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch_fl._suggest import nearest
from torch_fl.chips.descriptor.c_declaration import (
    POINTEE_DTYPES,
    CType,
    Declaration,
    DeclarationError,
    parse_declaration,
)
from torch_fl.chips.descriptor.checks import Check, combination_check, one_of, shape_checks, value_checks
from torch_fl.chips.descriptor.codes import DTYPE_CODES, TRACED, Code, KernelFlag, Program, Step, dtype_mask
from torch_fl.chips.descriptor.errors import DescriptorError, Problem
from torch_fl.chips.descriptor.expressions import (
    Compiled,
    ExpressionError,
    Parameter,
    Scope,
    compile_expression,
    compile_value,
)
from torch_fl.chips.descriptor.models import CFunction, Constraints, Descriptor, Op, OpFallback
from torch_fl.chips.descriptor.source import Key

Path = tuple[Key, ...]
Spec = dict[str, Any]

MAX_CHIP_NAME = 63
_DENSE = KernelFlag.CONTIGUOUS_INPUTS | KernelFlag.CONTIGUOUS_OUTPUTS
_LAYOUTS_OF_IMPL = {"contiguous": _DENSE, "channels_last": _DENSE | KernelFlag.CHANNELS_LAST_ONLY, "any": KernelFlag(0)}
_LAYOUTS_OF_OWN = {
    "contiguous": _DENSE,
    "channels_last": KernelFlag.CHANNELS_LAST_ONLY,
    "any": KernelFlag(0),
    None: KernelFlag(0),
}
# What each function of a library sees: values, then addresses, in the order of csrc/runtime/description.h.
_RUNTIME_FUNCTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "count": ((), ("result",)),
    "init": (("device",), ()),
    "alloc": (("device", "bytes"), ("result",)),
    "free": (("device",), ("address",)),
    "copy": (("device", "bytes", "kind"), ("dst", "src")),
    "synchronize": (("device",), ()),
}
# By value these are nothing that C passes.
_NO_C_TYPE = frozenset(DTYPE_CODES) - set(POINTEE_DTYPES.values())
_BYTES = ("int8", "uint8", "bool")


def lower(descriptor: Descriptor) -> Spec:
    """Return what `_C.load_described` takes; raise DescriptorError with every mistake."""
    return _Lowering(descriptor).run()


class _Lowering:
    def __init__(self, descriptor: Descriptor):
        self._d = descriptor
        self._problems: list[Problem] = []

    def run(self) -> Spec:
        d, capabilities = self._d, self._d.capabilities
        if len(d.name) > MAX_CHIP_NAME or "." in d.name:
            self.problem(("name",), f"at most {MAX_CHIP_NAME} letters, digits, _ and -", repr(d.name))
        kernels, rules, required = list[Spec](), list[tuple[str, Spec]](), list[str]()
        for i, op in enumerate(d.supported_ops):
            lowered = _OpLowering(self, op, ("supported_ops", i))
            kernels += lowered.kernels()
            rules += lowered.rules()
            required += [] if op.impl else [op.name]
        spec = {
            "name": d.name,
            "vendor": d.vendor or "",
            "version": d.driver_version or "",
            "device_type": d.device_type or "",
            "library": d.runtime_so,
            "library_where": self.where(("runtime_so",)),
            "properties": self._properties(),
            "host_coherent": self._host_coherent(),
            "runtime": self._runtime(),
            "kernels": kernels,
            "rules": rules,
            "required_rules": required,
            "defaults": {"flags": int(_LAYOUTS_OF_OWN[capabilities.layout]), "alignment": capabilities.alignment or 0},
            "policy": d.fallback_policy.default or "",
            **self._fallbacks(),
        }
        if self._problems:
            raise DescriptorError(self._problems)
        return spec

    # ---- Mistakes and places ----
    def problem(self, path: Path, expected: str, found: str = "", suggestion: str = "", fix: str = "") -> None:
        """Note a mistake and its place."""
        self._problems.append(self._d.problem(path, expected, found, suggestion=suggestion, fix=fix))

    def where(self, path: Path) -> str:
        """Return the place of a value, as messages begin."""
        place = self._d.problem(path, "")
        return f"{place.file}:{place.line}:{place.column}: {place.key}" if place.line else place.key

    def attempt(self, path: Path, text: object, compiling: Callable[[], Any]) -> Any:
        """Return what ``compiling`` gives, or None after a mistake was noted."""
        try:
            return compiling()
        except (ExpressionError, DeclarationError) as error:
            found = f"{error.found or 'something else'} at character {error.position + 1} of {str(text)[:200]!r}"
            self.problem(path, error.expected, found, getattr(error, "suggestion", ""), error.fix)
            return None

    # ---- The device ----
    def _properties(self) -> Spec:
        d, memory, compute = self._d, self._d.capabilities.memory, self._d.capabilities.compute
        given = {
            "name": d.chip_model or d.name,
            "driver_version": d.driver_version,
            "dtypes": dtype_mask(d.capabilities.dtypes or ()),
            "total_memory": memory and memory.total,
            "max_allocation": memory and memory.max_allocation,
            "alignment": memory and memory.alignment,
            "granularity": memory and memory.granularity,
            "compute_units": compute and compute.units,
            "clock_mhz": compute and compute.clock_mhz,
            "peak_flops": compute and compute.peak_flops,
            "peak_bandwidth": compute and compute.peak_bandwidth,
        }
        return {key: value for key, value in given.items() if value is not None}

    def _host_coherent(self) -> bool:
        memory, runtime = self._d.capabilities.memory, self._d.runtime
        if memory is not None and memory.host_coherent is not None:
            return memory.host_coherent
        return runtime is None or runtime.alloc is None

    def _runtime(self) -> Spec:
        runtime = self._d.runtime
        if runtime is None:
            return {}
        if runtime.alloc is not None and runtime.copy_ is None and not self._host_coherent():
            expected = "copy beside alloc, or capabilities.memory.host_coherent: true"
            self.problem(("runtime",), expected, "alloc without copy")
        spec: Spec = {"devices": runtime.devices or 1}
        if runtime.status is not None:
            spec |= {key: value for key, value in runtime.status.model_dump().items() if value is not None}
        for key, (values, addresses) in _RUNTIME_FUNCTIONS.items():
            function: CFunction | None = getattr(runtime, "copy_" if key == "copy" else key)
            if function is None:
                continue
            path = ("runtime", key)
            scope = Scope.of_function(values, addresses, f"runtime.{key}")
            lowered = self.c_function(path, function.signature, function.args, scope)
            if lowered is not None:
                self._check_result(path, key, lowered)
                spec[key] = {**lowered, "symbol": function.impl, "where": self.where((*path, "impl"))}
        return spec

    def _check_result(self, path: Path, key: str, function: Spec) -> None:
        wanted = {"alloc": ("a pointer", (CType.POINTER,)), "count": ("an integer", range(CType.INT8, CType.FLOAT))}
        if key not in wanted:
            return
        what, types = wanted[key]
        written = any(step[0] == Code.ADDRESS for program in function["arguments"] for step in program)
        if not written and function["result"] not in types:
            self.problem((*path, "signature"), f"{what} as result, or result among args", "neither")

    def c_function(self, path: Path, signature: str, args: Iterable[Any] | None, scope: Scope) -> Spec | None:
        """Return types and programs of a call."""
        declaration = self.attempt((*path, "signature"), signature, lambda: parse_declaration(signature))
        if declaration is None:
            return None
        given = list(args or ())
        if len(given) != len(declaration.parameters):
            found = f"{len(given)} args for {len(declaration.parameters)} parameters"
            self.problem((*path, "args"), "one of args for each parameter of signature", found)
            return None
        compiled = [self._argument((*path, "args", i), value, scope) for i, value in enumerate(given)]
        if any(item is None for item in compiled):
            return None
        return {
            "result": int(declaration.result.type),
            "parameters": [int(parameter.type) for parameter in declaration.parameters],
            "arguments": [item.program for item in compiled if item],
            "reads_values": [item.reads_values for item in compiled if item],
            "declaration": declaration,
            "compiled": compiled,
        }

    def _argument(self, path: Path, value: Any, scope: Scope) -> Compiled | None:
        compiled: Compiled | None = self.attempt(path, value, lambda: compile_value(value, scope))
        return compiled

    # ---- What happens elsewhere ----
    def _fallbacks(self) -> Spec:
        overrides, fallbacks = list[Spec](), list[tuple[str, Spec]]()
        for name, fallback in (self._d.fallback_policy.op_specific or {}).items():
            path: Path = ("fallback_policy", "op_specific", name)
            if not overloads(name):
                self.unknown_operator(path, name)
                continue
            fallbacks.append((name, self._fallback(fallback)))
            symbol = fallback.override and fallback.override.plugin
            if symbol:
                self.only_schema(path, name)
                where = self.where((*path, "override", "plugin"))
                overrides.append({"op": name, "symbol": symbol, "where": where, "flags": int(_DENSE)})
        return {"overrides": overrides, "fallbacks": fallbacks}

    @staticmethod
    def _fallback(fallback: OpFallback) -> Spec:
        override = fallback.override
        return {
            "policy": fallback.policy or "",
            "decompose": fallback.decompose,
            "python": (override and override.python) or "",
            "expression": (override and override.expression) or "",
        }

    # ---- Operators ----
    def unknown_operator(self, path: Path, name: str) -> None:
        """Note an operator that this PyTorch does not have."""
        import torch

        suggestion = nearest(name, torch._C._dispatch_get_all_op_names())
        self.problem(path, "an operator of this PyTorch", repr(name), suggestion)

    def only_schema(self, path: Path, name: str) -> Any:
        """Return the schema of the one overload that a name means; None after a mistake was noted."""
        found = overloads(name)
        if len(found) == 1:
            return found[0][1]
        if not found:
            self.unknown_operator(path, name)
        else:
            names = [full for full, _ in found]
            self.problem(path, "the name of one overload", repr(name), names[0], f"There are {', '.join(names)}")
        return None


class _OpLowering:
    """One entry of supported_ops."""

    def __init__(self, whole: _Lowering, op: Op, path: Path):
        self._whole, self._op, self._path = whole, op, path
        self._capabilities = whole._d.capabilities
        self._schemas = self._find_schemas()
        self._implicit: list[Check] = []

    def _find_schemas(self) -> list[tuple[str, Any]]:
        name, path = self._op.name, (*self._path, "name")
        if self._op.impl is not None:
            schema = self._whole.only_schema(path, name)
            return [] if schema is None else [(name, schema)]
        found = overloads(name)
        if not found:
            self._whole.unknown_operator(path, name)
        return found

    # ---- The kernel ----
    def kernels(self) -> list[Spec]:
        """Return the row, if the entry names a function."""
        op = self._op
        if op.impl is None or not self._schemas:
            return []
        kernel: Spec = {
            "op": op.name,
            "flags": int(self._row_flags()),
            "dtypes": dtype_mask(self._dtypes() or ()),
            "plain": op.signature is not None,
            "where": self._whole.where((*self._path, "impl")),
            **self._symbols(),
        }
        if op.signature is None:
            return [kernel]
        scope = Scope.of_schema(self._schemas[0][1], op.name)
        call = self._whole.c_function(self._path, op.signature, op.args, scope)
        if call is None:
            return []
        declaration: Declaration = call.pop("declaration")
        self._check_values(declaration)
        self._implicit = list(_pointer_checks(declaration, call.pop("compiled"), scope))
        return [{**kernel, **call, "starts_as": self._starts_as(scope)}]

    def _dtypes(self) -> list[str] | None:
        given = self._op.dtype_support
        if isinstance(self._op.impl, dict):
            return given or list(self._op.impl)
        return given or self._capabilities.dtypes

    def _symbols(self) -> Spec:
        impl = self._op.impl
        if not isinstance(impl, dict):
            return {"symbol": impl}
        symbols = []
        for dtype in self._dtypes() or ():
            if dtype in impl:
                symbols.append((DTYPE_CODES[dtype], impl[dtype]))
            else:
                expected = f"a type that impl has a function for: {', '.join(impl)}"
                self._whole.problem((*self._path, "dtype_support"), expected, dtype)
        return {"symbol": next(iter(impl.values())), "symbols": symbols}

    def _check_values(self, declaration: Declaration) -> None:
        """T by value, or as the result, needs types that C can pass."""
        types = [declaration.result.type, *(parameter.type for parameter in declaration.parameters)]
        if CType.COMPUTE not in types:
            return
        dtypes = self._dtypes()
        if not dtypes:
            self._whole.problem(self._path, "dtype_support, since T is passed by value", "no types")
        for dtype in dtypes or ():
            if dtype in _NO_C_TYPE:
                path = (*self._path, "dtype_support")
                fix = "Pass a pointer, or write the type that stands for it, such as uint16_t"
                self._whole.problem(path, "types that C passes by value, for T", dtype, fix=fix)

    def _starts_as(self, scope: Scope) -> int:
        name = self._op.starts_as
        if name is None:
            return -1
        parameter = scope.parameters.get(name)
        if parameter is None or parameter.kind != "tensor":
            names = [tensor.name for tensor in scope.tensors]
            path = (*self._path, "starts_as")
            self._whole.problem(path, f"a tensor argument: {', '.join(names)}", repr(name), nearest(name, names))
            return -1
        return parameter.index

    def _layout(self) -> str | None:
        constraints = self._op.constraints
        return (constraints and constraints.layout) or self._capabilities.layout

    def _row_flags(self) -> KernelFlag:
        op = self._op
        flags = _LAYOUTS_OF_IMPL[self._layout() or "contiguous"]
        flags |= KernelFlag.PROMOTE if op.promote else KernelFlag(0)
        flags |= KernelFlag.BROADCAST if op.broadcast else KernelFlag(0)
        in_place = op.constraints is not None and op.constraints.in_place
        return flags | (KernelFlag.IN_PLACE_SAFE if in_place else KernelFlag(0))

    # ---- Its rules ----
    def rules(self) -> list[tuple[str, Spec]]:
        """Return the rules of every overload that the entry means."""
        return [(name, self._rules(name, schema)) for name, schema in self._schemas]

    def _rules(self, name: str, schema: Any) -> Spec:
        constraints = self._op.constraints or Constraints.model_validate({})
        scope = Scope.of_schema(schema, name)
        checks = [*self._implicit, *self._own_dtypes(), *self._checks(constraints, scope)]
        rules: Spec = {
            "checks": [check.plain() for check in checks],
            "alignment": constraints.alignment or self._capabilities.alignment or 0,
            "casts": [(DTYPE_CODES[a], DTYPE_CODES[b]) for a, b in (constraints.cast or {}).items()],
        }
        if self._op.impl is None:
            layout = self._layout()
            rules["flags"] = int(_LAYOUTS_OF_OWN[layout])
            rules["flags"] |= int(KernelFlag.IN_PLACE_SAFE) if constraints.in_place else 0
            rules["cleared"] = int(KernelFlag.CHANNELS_LAST_OK) if layout == "contiguous" else 0
            rules["cleared"] |= int(KernelFlag.IN_PLACE_SAFE) if constraints.in_place is False else 0
        return rules

    def _own_dtypes(self) -> Iterator[Check]:
        """The types of a kernel in the plugin's own table, which the row does not narrow."""
        dtypes = self._op.dtype_support
        if self._op.impl is None and dtypes:
            types: Program = [(int(Code.TYPE), 0, DTYPE_CODES[dtype]) for dtype in dtypes]
            of_call: Step = (int(Code.COMPUTE_DTYPE), 0, 0)
            holds: Program = [of_call, *types, (int(Code.IN), 0, len(types))]
            yield Check(holds, f"the type computed in must be {one_of(dtypes)}", [of_call])

    def _checks(self, constraints: Constraints, scope: Scope) -> Iterator[Check]:
        for tensor in scope.tensors:
            yield from shape_checks(constraints, tensor)
        yield from self._combinations(constraints, scope)
        for name, rules in (constraints.arguments or {}).items():
            path = (*self._path, "constraints", "arguments", name)
            parameter = self._parameter(path, name, scope)
            if parameter is None:
                continue
            if rules.of_tensor and parameter.kind in ("tensor", "tensors"):
                yield from shape_checks(rules, parameter)
            elif rules.of_value and parameter.kind in ("value", "values"):
                yield from self._value_checks(path, rules, parameter)
            else:
                of_tensor = "dtypes, ndim, max_elements, size_multiple or size_range, since it is a tensor"
                of_value = "values, min or max, since it is no tensor"
                is_tensor = parameter.kind in ("tensor", "tensors")
                self._whole.problem(path, of_tensor if is_tensor else of_value, "rules of the other kind")
        for i, text in enumerate(constraints.require or ()):
            yield from self._requirement((*self._path, "constraints", "require", i), text, scope)

    def _combinations(self, constraints: Constraints, scope: Scope) -> Iterator[Check]:
        tensors = scope.tensors
        for i, combination in enumerate(constraints.dtype_combinations or ()):
            if len(combination) > len(tensors):
                path = (*self._path, "constraints", "dtype_combinations", i)
                names = ", ".join(tensor.name for tensor in tensors)
                self._whole.problem(path, f"a type for each of {names}", f"{len(combination)} types")
                return
        if constraints.dtype_combinations:
            yield combination_check(constraints.dtype_combinations, tensors)

    def _parameter(self, path: Path, name: str, scope: Scope) -> Parameter | None:
        found = scope.parameters.get(name)
        if found is not None and found.kind != "opaque":
            return found
        if name == "out" and scope.outputs:
            return Parameter("out", -1, "tensor")
        names = list(scope.parameters)
        what = f"an argument of {scope.what}: {', '.join(names)}"
        self._whole.problem(path, what, repr(name), nearest(name, names))
        return None

    def _value_checks(self, path: Path, rules: Any, parameter: Parameter) -> Iterator[Check]:
        for value in rules.values or ():
            if parameter.of_type and value not in DTYPE_CODES:
                self._whole.problem(path, "the names of types", repr(value))
                return
        checks = self._whole.attempt(path, rules.values, lambda: list(value_checks(rules, parameter)))
        yield from checks or ()

    def _requirement(self, path: Path, text: str, scope: Scope) -> Iterator[Check]:
        compiled = self._whole.attempt(path, text, lambda: compile_expression(text, scope))
        if compiled is not None:
            yield Check(compiled.program, f"it is required that {text}", compiled.left, compiled.reads_values)


def _pointer_checks(declaration: Declaration, compiled: list[Compiled], scope: Scope) -> Iterator[Check]:
    """What typed pointers point to must be of that type: the function could not tell."""
    by_index = {tensor.index: tensor for tensor in scope.tensors}
    seen = set()
    for parameter, argument in zip(declaration.parameters, compiled, strict=True):
        for index in sorted(argument.data):
            tensor = by_index.get(index) or Parameter("out" if index == -1 else f"out{-1 - index}", index, "tensor")
            pointee = CType[parameter.pointee] if parameter.pointee and index != TRACED else CType.VOID
            if pointee in (CType.VOID, CType.POINTER) or (index, pointee) in seen:
                continue
            seen.add((index, pointee))
            yield _compute_check(tensor) if pointee == CType.COMPUTE else _pointee_check(tensor, pointee)


def _compute_check(tensor: Parameter) -> Check:
    of_tensor: Step = (int(Code.DTYPE), tensor.index, 0)
    holds: Program = [of_tensor, (int(Code.COMPUTE_DTYPE), 0, 0), (int(Code.EQUAL), 0, 0)]
    if tensor.optional or tensor.index < 0:
        absent: Program = [(int(Code.PRESENT), tensor.index, 0), (int(Code.NOT), 0, 0)]
        holds = [*absent, (int(Code.JUMP_IF_TRUE_KEEP), 0, len(holds)), *holds]
    return Check(holds, f"{tensor.name} must have the type computed in", [of_tensor])


def _pointee_check(tensor: Parameter, pointee: CType) -> Check:
    dtype = POINTEE_DTYPES[pointee]
    dtypes = _BYTES if dtype in _BYTES else (dtype,)
    holds: Program = [(int(Code.EVERY_DTYPE_IN), tensor.index, dtype_mask(dtypes))]
    return Check(holds, f"{tensor.name} must be {one_of(dtypes)}", [(int(Code.DTYPE), TRACED, 0)])


def overloads(name: str) -> list[tuple[str, Any]]:
    """Return (full name, schema) of what an operator's name means.

    That is the overload of exactly this name; if there is none, every overload but the out= forms.
    """
    import torch

    base, _, overload = name.partition(".")
    if _exists(base, overload):
        return [(name, torch._C._get_schema(base, overload))]
    if overload:
        return []
    found = {schema.overload_name: schema for schema in torch._C._jit_get_schemas_for_operator(base)}
    return [
        (f"{base}.{overload_name}", schema)
        for overload_name, schema in sorted(found.items())
        if overload_name and _exists(base, overload_name) and not any(a.is_out for a in schema.arguments)
    ]


def _exists(base: str, overload: str) -> bool:
    import torch

    try:
        torch._C._dispatch_find_schema_or_throw(base, overload)
    except RuntimeError:
        return False
    return True
