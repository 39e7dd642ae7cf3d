# SPDX-License-Identifier: Apache-2.0
"""The schema of a descriptor (docs/descriptors.md). Validated models hold every short form written out.

The descriptions of the fields are the texts that editors show: they become the JSON Schema.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, PrivateAttr, Tag, model_validator

from torch_fl.chips.descriptor.errors import Problem
from torch_fl.chips.descriptor.fields import (
    Alignment,
    Argument,
    Before,
    ChipName,
    Count,
    DeviceType,
    Dim,
    DType,
    Expression,
    FilePath,
    Layout,
    Name,
    Number,
    OperatorName,
    Order,
    Policy,
    ScalarValue,
    Signature,
    Size,
    Symbol,
    Text,
    as_values,
    keyed_all,
    many,
    mistake,
)
from torch_fl.chips.descriptor.source import Node, Path

DTypes = Annotated[list[DType], Field(min_length=1, max_length=32)]
Expressions = Annotated[list[Expression], Field(max_length=64)]
Arguments = Annotated[list[ScalarValue], Field(max_length=128)]


class Model(BaseModel):
    """Unknown keys are mistakes, and nothing is converted silently."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, regex_engine="python-re")

    @model_validator(mode="before")
    @classmethod
    def _is_a_mapping(cls, value: Any) -> Any:
        if isinstance(value, dict | Model):
            return value
        raise mistake(f"a mapping with keys of {', '.join(list(cls.model_fields)[:6])}", value)


def _in_order(low: Any, high: Any) -> None:
    if low is not None and high is not None and low > high:
        raise mistake("min to be at most max", f"min {low}, max {high}", as_is=True)


class OrderSet(Model):
    """Numbers of dimensions: any of ``values``, or from ``min`` to ``max``."""

    values: Annotated[list[Order], Field(min_length=1, max_length=65)] | None = Field(None, description="Any of these.")
    min: Order | None = Field(None, description="At least this.")
    max: Order | None = Field(None, description="At most this.")

    @model_validator(mode="after")
    def _check(self) -> OrderSet:
        _one_way(self.values, self.min, self.max)
        return self


def _one_way(values: Any, low: Any, high: Any) -> None:
    if values is None and low is None and high is None:
        raise mistake("a value, a list of values, min or max", "none of them", as_is=True)
    if values is not None and (low is not None or high is not None):
        raise mistake("either values, or min and max", "both", as_is=True)
    _in_order(low, high)


class SizeRange(Model):
    """The sizes that a dimension may have."""

    min: Annotated[int, Field(ge=0)] | None = Field(None, description="At least this.")
    max: Annotated[int, Field(ge=0)] | None = Field(None, description="At most this.")

    @model_validator(mode="after")
    def _check(self) -> SizeRange:
        _in_order(self.min, self.max)
        return self


def _as_range(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    if len(value) == 2:
        return {"min": value[0], "max": value[1]}
    raise mistake("two numbers, [min, max]", value)


def _ranges(value: Any) -> Any:
    whole = isinstance(value, dict) and value and set(value) <= {"min", "max"}
    return {"all": value} if whole or isinstance(value, list) else value


Pair = Annotated[list[int], Field(min_length=2, max_length=2)]
OneRange = Annotated[SizeRange, Before(_as_range, json_schema_input_type=SizeRange | Pair)]
SizeRanges = Annotated[
    dict[Dim, OneRange],
    Field(min_length=1),
    Before(_ranges, json_schema_input_type=dict[Dim, SizeRange | Pair] | SizeRange | Pair),
]
Multiples = Annotated[
    dict[Dim, Count], Field(min_length=1), Before(keyed_all, json_schema_input_type=Count | dict[Dim, Count])
]
OrderInput = Annotated[OrderSet, Before(as_values, json_schema_input_type=Order | list[Order] | OrderSet)]


class ShapeRules(Model):
    """What is asked of a tensor's type and shape."""

    dtypes: DTypes | None = Field(None, description="Element types that are taken.")
    ndim: OrderInput | None = Field(
        None, description="Numbers of dimensions that are taken: 4, [3, 4], or {min: 1, max: 4}."
    )
    max_elements: Count | None = Field(None, description="At most so many elements.")
    size_multiple: Multiples | None = Field(
        None, description="Sizes are multiples: 128 for every dimension, or {0: 128, -1: 64}."
    )
    size_range: SizeRanges | None = Field(None, description="Sizes are in ranges: {0: [1, 64]}.")


class ArgumentRules(ShapeRules):
    """What is asked of one argument: of a tensor its type and shape, of anything else its value."""

    values: Annotated[list[ScalarValue], Field(min_length=1, max_length=256)] | None = Field(
        None, description="The argument, and every element of a list, is one of these."
    )
    min: Number | None = Field(None, description="The argument, and every element of a list, is at least this.")
    max: Number | None = Field(None, description="The argument, and every element of a list, is at most this.")

    @property
    def of_value(self) -> bool:
        """Whether these are rules for a number, boolean, string or list."""
        return not (self.values is None and self.min is None and self.max is None)

    @property
    def of_tensor(self) -> bool:
        """Whether these are rules for a tensor."""
        return any(getattr(self, name) is not None for name in ShapeRules.model_fields)

    @model_validator(mode="after")
    def _check(self) -> ArgumentRules:
        if self.of_value and self.of_tensor:
            raise mistake("rules of a tensor, or rules of a value (values, min, max)", "both", as_is=True)
        if self.of_value or not self.of_tensor:
            _one_way(self.values, self.min, self.max)
        return self


ArgumentInput = Annotated[
    ArgumentRules,
    Before(as_values, json_schema_input_type=bool | int | float | str | list[ScalarValue] | ArgumentRules),
]


class Constraints(ShapeRules):
    """When a call is taken. What stands here concerns every tensor of the call; ``arguments`` concerns single ones."""

    dtype_combinations: Annotated[list[DTypes], Field(min_length=1, max_length=512)] | None = Field(
        None, description="Types of the tensor arguments, in order: [[float16, float16], [float32, float32]]."
    )
    layout: Layout | None = Field(None, description="Layout of the tensors. The host converts others.")
    alignment: Alignment | None = Field(None, description="Bytes, a power of two. The host copies other tensors.")
    in_place: bool | None = Field(None, description="false: the output never is an input; the host uses a temporary.")
    cast: dict[DType, DType] | None = Field(
        None, description="Computed in another type and cast back: {bfloat16: float32}."
    )
    arguments: Annotated[dict[Argument, ArgumentInput], Field(max_length=64)] | None = Field(
        None, description="Rules for single arguments, by their names in the operator's schema."
    )
    require: Expressions | None = Field(None, description="Expressions that must hold: self.size(1) == mat2.size(0).")


Implementation = Annotated[
    Annotated[Symbol, Tag("name")] | Annotated[dict[DType, Symbol], Field(min_length=1), Tag("names by type")],
    Discriminator(lambda value: "names by type" if isinstance(value, dict) else "name"),
]


def _implementation(value: Any) -> Any:
    if isinstance(value, str | dict):
        return value
    raise mistake("the name of a C function, or a mapping from types to names", value)


class Op(Model):
    """One operator that the chip computes."""

    name: OperatorName = Field(description="The overload: aten::mm, or aten::add.Tensor.")
    impl: Annotated[Implementation, Before(_implementation)] | None = Field(
        None, description="The function in runtime_so: one name, or one for each type: {float32: my_smm}."
    )
    signature: Signature | None = Field(
        None, description="Its C declaration. Without it, the function is an fl_kernel_fn of fl_plugin.h."
    )
    args: Arguments | None = Field(
        None, description="What is passed for each parameter of the signature: constants and expressions."
    )
    promote: bool | None = Field(None, description="true: the host casts the arguments to their promoted type first.")
    broadcast: bool | None = Field(None, description="true: the host expands the arguments to the output's shape.")
    starts_as: Argument | None = Field(
        None,
        description="The output becomes a copy of this argument first: for functions that add to what is there.",
    )
    dtype_support: DTypes | None = Field(None, description="Types that it computes in. Default: capabilities.dtypes.")
    constraints: Constraints | None = Field(None, description="When a call is taken. Others go on to the next route.")

    @model_validator(mode="after")
    def _check(self) -> Op:
        if self.signature is not None and self.impl is None:
            raise mistake("impl beside signature", "no impl", "Name the function that has this signature", as_is=True)
        if self.args is not None and self.signature is None:
            raise mistake("signature beside args", "no signature", "Write the function's C declaration", as_is=True)
        if self.starts_as is not None and self.signature is None:
            raise mistake(
                "signature beside starts_as", "no signature", "Write the function's C declaration", as_is=True
            )
        if self.impl is None and (self.promote is not None or self.broadcast is not None):
            raise mistake("impl beside promote and broadcast", "no impl", "A plugin's own table says this", as_is=True)
        if isinstance(self.impl, dict) and self.signature is None:
            raise mistake("signature beside functions by type", "none", "An fl_kernel_fn has one name", as_is=True)
        return self

    def symbol(self, dtype: str) -> str | None:
        """Return the function for a type; None: there is none."""
        return self.impl.get(dtype) if isinstance(self.impl, dict) else self.impl


class CFunction(Model):
    """A plain C function of the library, and what it is passed."""

    impl: Symbol = Field(description="The function's name in runtime_so.")
    signature: Signature = Field(description="Its C declaration.")
    args: Arguments = Field(default_factory=list, description="What is passed for each parameter.")


Codes = Annotated[
    list[Annotated[int, Field(ge=-(2**31), lt=2**31)]],
    Field(min_length=1, max_length=64),
    Before(many, json_schema_input_type=int | list[int]),
]


class Status(Model):
    """What the ints mean that the library's functions return."""

    ok: Codes = Field(default_factory=lambda: [0], description="Success. Default: 0.")
    out_of_memory: Codes | None = Field(None, description="No memory left: the core frees its caches and tries again.")
    device_lost: Codes | None = Field(None, description="The device answers no more.")

    @model_validator(mode="after")
    def _check(self) -> Status:
        codes = [*self.ok, *(self.out_of_memory or ()), *(self.device_lost or ())]
        twice = sorted({code for code in codes if codes.count(code) > 1})
        if twice:
            raise mistake("every code to have one meaning", f"{twice[0]} twice", as_is=True)
        return self


class Runtime(Model):
    """A plain library's functions beyond kernels. Absent: tensors live in host memory, and nothing is started."""

    devices: Annotated[int, Field(ge=1, le=64)] | None = Field(None, description="How many devices. Default: 1.")
    count: CFunction | None = Field(
        None, description="Returns how many devices there are, or writes that to result. Sees: result."
    )
    init: CFunction | None = Field(None, description="Called once for each device. Sees: device.")
    alloc: CFunction | None = Field(
        None, description="Returns an address, or writes it to result. Sees: device, bytes, result."
    )
    free: CFunction | None = Field(None, description="Sees: device, address.")
    copy_: CFunction | None = Field(None, alias="copy", description="Sees: device, dst, src, bytes, kind.")
    synchronize: CFunction | None = Field(None, description="Waits for all work of a device. Sees: device.")
    status: Status | None = Field(None, description="What the ints mean that functions return. Default: 0 is success.")

    @model_validator(mode="after")
    def _check(self) -> Runtime:
        if (self.alloc is None) != (self.free is None):
            there, absent = ("alloc", "free") if self.free is None else ("free", "alloc")
            raise mistake("alloc and free together", f"{there} without {absent}", as_is=True)
        if self.devices is not None and self.count is not None:
            raise mistake("either devices or count", "both", as_is=True)
        return self


class Memory(Model):
    """A device's memory."""

    total: Size | None = Field(None, description="Bytes on one device: 4GiB.")
    max_allocation: Size | None = Field(None, description="The largest single allocation, in bytes.")
    alignment: Alignment | None = Field(None, description="Of what the library allocates, in bytes; a power of two.")
    granularity: Size | None = Field(None, description="Allocations are multiples of this many bytes.")
    host_coherent: bool | None = Field(None, description="The host reads and writes it without copies.")

    @model_validator(mode="after")
    def _check(self) -> Memory:
        if self.total is not None and self.max_allocation is not None and self.max_allocation > self.total:
            found = f"max_allocation {self.max_allocation}, total {self.total}"
            raise mistake("max_allocation to be at most total", found, as_is=True)
        return self


class Compute(Model):
    """A device's speed, as its data sheet says."""

    units: Annotated[int, Field(ge=1, lt=2**31)] | None = Field(None, description="Compute units, cores.")
    clock_mhz: Annotated[int, Field(ge=1, lt=2**31)] | None = Field(None, description="Clock in MHz.")
    peak_flops: Annotated[float, Field(gt=0)] | None = Field(None, description="Operations a second: 1.0e11.")
    peak_bandwidth: Annotated[float, Field(gt=0)] | None = Field(None, description="Bytes a second: 2.0e10.")


class Capabilities(Model):
    """What a device can do, for all operators."""

    dtypes: DTypes | None = Field(None, description="The chip computes in these types and no other.")
    memory: Memory | None = Field(None, description="Its memory.")
    compute: Compute | None = Field(None, description="Its speed.")
    features: Annotated[list[Text], Field(max_length=64)] | None = Field(None, description="Free words, for people.")
    layout: Layout | None = Field(None, description="Layout of every operator that says no other.")
    alignment: Alignment | None = Field(None, description="Bytes, of every tensor argument; a power of two.")


class Override(Model):
    """What computes an operator that the chip has no kernel for. Exactly one of these."""

    expression: Expression | None = Field(
        None, description='An expression of operators: "self * aten::sigmoid(1.702 * self)".'
    )
    python: Name | None = Field(None, description="A function registered with torch_fl.override_function.")
    plugin: Symbol | None = Field(None, description="A function of runtime_so: fl_status f(const fl_call*).")

    @model_validator(mode="after")
    def _check(self) -> Override:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise mistake("exactly one of expression, python, plugin", ", ".join(given) or "none of them", as_is=True)
        return self


class OpFallback(Model):
    """What is done with calls of one operator that no kernel takes."""

    policy: Policy | None = Field(None, description="allow, warn or deny; default: fallback_policy.default.")
    override: Override | None = Field(None, description="What computes it instead.")
    decompose: bool = Field(True, description="PyTorch's decomposition into other operators may be taken.")


def _as_policy(value: Any) -> Any:
    if isinstance(value, dict | OpFallback):
        return value
    if isinstance(value, str | bool):
        return {"policy": value}
    raise mistake("allow, warn, deny, or a mapping with policy, override, decompose", value)


OpFallbackInput = Annotated[OpFallback, Before(_as_policy, json_schema_input_type=Policy | OpFallback)]


class FallbackPolicy(Model):
    """What is done with calls that would leave the chip."""

    default: Policy | None = Field(None, description="Of every operator: allow, warn or deny. Default: allow.")
    op_specific: dict[OperatorName, OpFallbackInput] | None = Field(
        None, description="Of single operators: a policy, or {policy: , override: , decompose: }."
    )


class Descriptor(Model):
    """A chip: its library, what it can do, which operators it computes, and what happens with the others."""

    schema_: str | None = Field(None, alias="$schema", description="For editors; ignored.")
    extends: Annotated[list[FilePath], Before(many, json_schema_input_type=FilePath | list[FilePath])] | None = Field(
        None, description="Descriptors to start from, relative to this file. Mappings merge; what is later wins."
    )
    name: ChipName = Field(description="The chip's name. Default: the file's name without .fl.yaml or .yaml.")
    device_type: DeviceType | None = Field(None, description='With npu, torch.device("npu:0") means this chip.')
    vendor: Text | None = Field(None, description="Who makes it.")
    chip_model: Text | None = Field(None, description="Which chip.")
    driver_version: Text | None = Field(None, description='Of its driver. Text: "1.10", in quotes.')
    runtime_so: FilePath = Field(
        description="The library: a path relative to this file, or a bare name for the dynamic linker."
        " $VAR, ${VAR} and ${VAR:-default} are replaced."
    )
    runtime_header: FilePath | None = Field(None, description="The library's header, for people.")
    capabilities: Capabilities = Field(
        default_factory=lambda: Capabilities.model_validate({}), description="What its devices can do."
    )
    runtime: Runtime | None = Field(None, description="A plain library's functions beyond kernels.")
    supported_ops: list[Op] = Field(default_factory=list, description="The operators that it computes.")
    fallback_policy: FallbackPolicy = Field(
        default_factory=lambda: FallbackPolicy.model_validate({}),
        description="What is done with calls that would leave the chip.",
    )

    _file: str = PrivateAttr("")
    _source: Node | None = PrivateAttr(None)

    @property
    def file(self) -> str:
        """The path that it was read from; empty: from none."""
        return self._file

    def problem(
        self,
        path: Path,
        expected: str,
        found: str = "",
        *,
        suggestion: str = "",
        fix: str = "",
        at_key: bool = False,
        severity: Literal["error", "warning"] = "error",
    ) -> Problem:
        """Return a problem that names file, line and key of what stands at ``path``.

        ``path`` holds keys and indices: ``("supported_ops", 2, "constraints", "require", 0)``.
        """
        source = self._source or Node.of(self.model_dump(by_alias=True, exclude_none=True), self._file)
        return source.problem(path, expected, found, suggestion=suggestion, fix=fix, at_key=at_key, severity=severity)
