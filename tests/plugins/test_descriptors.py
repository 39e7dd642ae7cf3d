# SPDX-License-Identifier: Apache-2.0
"""What good descriptors mean, how they extend others, and which files are not believed."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.plugins.helpers import compile_plugin, run_python, succeed
from torch_fl.chips import trust
from torch_fl.chips.descriptor import DescriptorError, load, reader, schema, validate
from torch_fl.chips.descriptor.extends import MAX_CHAIN, MAX_FILES
from torch_fl.chips.descriptor.loader import default_name
from torch_fl.chips.descriptor.reader import MAX_BYTES, MAX_NODES
from torch_fl.routing.errors import ConfigError

FULL = """
name: openblas
device_type: blas
vendor: OpenBLAS
chip_model: any x86-64
driver_version: "0.3"
runtime_so: ${OPENBLAS_SO:-libopenblas.so.0}
runtime_header: cblas.h
capabilities:
  dtypes: [float32, float64]
  memory: {total: 4GiB, max_allocation: 1.5GiB, alignment: 64, granularity: 64, host_coherent: true}
  compute: {units: 2, clock_mhz: 3000, peak_flops: 1.0e11, peak_bandwidth: 2e10}
  features: [gemm]
  layout: contiguous
  alignment: 64
runtime:
  init: {impl: vendor_init, signature: "int vendor_init(int device)", args: [device]}
  alloc: {impl: vendor_malloc, signature: "void* vendor_malloc(size_t n)", args: [bytes]}
  free: {impl: vendor_free, signature: "void vendor_free(void* p)", args: [address]}
  copy: {impl: vendor_copy, signature: "int vendor_copy(void* d, const void* s, size_t n)", args: [dst, src, bytes]}
  synchronize: {impl: vendor_sync, signature: "int vendor_sync(void)"}
  status: {ok: 0, out_of_memory: [2], device_lost: [7]}
supported_ops:
  - name: aten::mm
    impl: {float32: cblas_sgemm, float64: cblas_dgemm}
    signature: void (int, int m, int n, T alpha, const T* a)
    args: [101, self.size(0), mat2.size(1), 1.5, self.data]
    dtype_support: [float32, float64]
    constraints:
      ndim: 2
      size_multiple: {0: 128, -1: 64}
  - name: aten::convolution
    impl: vendor_conv
    constraints:
      dtypes: [float32]
      dtype_combinations: [[float16, float16], [float32, float32]]
      ndim: {min: 3, max: 4}
      max_elements: 1048576
      size_multiple: 8
      size_range: {0: [1, 64], 1: {max: 3}}
      layout: channels_last
      alignment: 64KiB
      in_place: false
      cast: {bfloat16: float32}
      arguments:
        weight: {ndim: [3, 4], dtypes: [float32], size_multiple: 4, size_range: {0: [1, 64]}, max_elements: 4096}
        stride: {values: [1, 2, 4]}
        groups: 1
        transposed: false
        padding: {min: 0, max: 3}
      require: ["input.size(1) == weight.size(1) or groups > 1"]
fallback_policy:
  default: allow
  op_specific:
    aten::sort: deny
    aten::gelu: {policy: warn, override: {expression: "self * aten::sigmoid(1.702 * self)"}, decompose: false}
    aten::silu: {override: {python: my_silu}}
    aten::relu: {override: {plugin: my_relu}}
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def errors(path: Path) -> str:
    with pytest.raises(DescriptorError) as caught:
        load(path)
    return str(caught.value)


def test_every_key_of_the_design(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_SO", raising=False)
    chip = load(write(tmp_path, "x.yaml", FULL))
    assert (chip.name, chip.device_type, chip.runtime_so) == ("openblas", "blas", "libopenblas.so.0")
    memory = chip.capabilities.memory
    assert memory is not None
    assert (memory.total, memory.max_allocation) == (4 * 2**30, 3 * 2**29)
    mm, conv = chip.supported_ops
    assert (mm.symbol("float64"), mm.symbol("int8"), conv.symbol("int8")) == ("cblas_dgemm", None, "vendor_conv")
    assert mm.constraints is not None
    assert mm.constraints.size_multiple == {0: 128, -1: 64}
    rules = conv.constraints
    assert rules is not None
    assert rules.size_multiple == {"all": 8}
    assert rules.alignment == 65536
    assert rules.arguments is not None
    assert rules.arguments["groups"].values == [1]
    assert rules.arguments["transposed"].values == [False]
    fallback = chip.fallback_policy.op_specific
    assert fallback is not None
    assert fallback["aten::sort"].policy == "deny"
    assert not fallback["aten::gelu"].decompose
    assert chip.runtime is not None
    assert chip.runtime.copy_ is not None


def test_a_good_descriptor_has_no_errors(tmp_path: Path) -> None:
    found = validate(write(tmp_path, "x.yaml", FULL))
    assert [str(problem) for problem in found if problem.severity == "error"] == []


def test_a_library_that_is_not_there_is_a_warning(tmp_path: Path) -> None:
    (problem,) = validate(write(tmp_path, "x.yaml", "runtime_so: lib/libvendor.so\n"))
    assert problem.severity == "warning"
    assert (problem.line, problem.key) == (1, "runtime_so")
    assert str(tmp_path / "lib" / "libvendor.so") in problem.found


@pytest.mark.parametrize("name", ["chip.fl.yaml", "chip.yaml", "chip.yml", "chip.fl.yml", "chip"])
def test_the_name_comes_from_the_file(name: str) -> None:
    assert default_name(f"/a/{name}") == "chip"


def test_a_file_name_that_is_no_name(tmp_path: Path) -> None:
    assert "at most 63 letters" in errors(write(tmp_path, "my chip.yaml", "runtime_so: a.so\n"))


def test_every_mistake_is_reported_in_the_order_of_the_text(tmp_path: Path) -> None:
    text = "vendro: x\nruntime_so: 5\nsupported_ops:\n  - {name: mm, impl: a-b}\nfallback_policy: {default: alow}\n"
    with pytest.raises(DescriptorError) as caught:
        load(write(tmp_path, "x.yaml", text))
    assert [problem.line for problem in caught.value.problems] == [1, 2, 4, 4, 5]
    assert isinstance(caught.value, ConfigError)
    assert caught.value.problems[0].key == "vendro"
    assert caught.value.problems[2].key == "supported_ops[0].name"
    first = str(caught.value).splitlines()[0]
    assert first.startswith(f"{tmp_path}/x.yaml:1:1: vendro: expected one of the keys ")
    assert first.endswith("found 'vendro'; did you mean 'vendor'?")


def test_more_mistakes_than_anyone_reads(tmp_path: Path) -> None:
    text = "runtime_so: a.so\n" + "".join(f"k{i}: 1\n" for i in range(1000))
    lines = errors(write(tmp_path, "x.yaml", text)).splitlines()
    assert len(lines) == 51
    assert "950 more" in lines[-1]


def test_errors_survive_pickling(tmp_path: Path) -> None:
    import pickle

    with pytest.raises(DescriptorError) as caught:
        load(write(tmp_path, "x.yaml", "runtime_so: 5\n"))
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.problems == caught.value.problems


# ---- extends


def test_extends_merges_mappings_and_operators_by_name(tmp_path: Path) -> None:
    base = """
vendor: Base
runtime_so: lib/base.so
capabilities: {dtypes: [float32], memory: {total: 1GiB, alignment: 64}}
supported_ops:
  - {name: aten::mm, impl: base_mm, constraints: {ndim: 2, max_elements: 100}}
  - {name: aten::relu, impl: base_relu}
fallback_policy: {op_specific: {aten::gelu: {override: {python: f}}}}
"""
    own = """
extends: base.yaml
vendor: Own
capabilities: {memory: {total: 2GiB}}
supported_ops:
  - {name: aten::exp, impl: own_exp}
  - {name: aten::mm, impl: own_mm, constraints: {max_elements: 200}}
fallback_policy: {op_specific: {aten::gelu: {override: {plugin: g}}}}
"""
    write(tmp_path, "base.yaml", base)
    chip = load(write(tmp_path, "own.yaml", own))
    assert (chip.name, chip.vendor, chip.runtime_so) == ("own", "Own", str(tmp_path / "lib" / "base.so"))
    assert chip.capabilities.dtypes == ["float32"]
    memory = chip.capabilities.memory
    assert memory is not None
    assert (memory.total, memory.alignment) == (2 * 2**30, 64)
    mm, relu, exp = chip.supported_ops
    assert (mm.impl, relu.impl, exp.impl) == ("own_mm", "base_relu", "own_exp")
    assert mm.constraints is not None
    assert mm.constraints.max_elements == 200
    assert mm.constraints.ndim is not None
    fallback = chip.fallback_policy.op_specific
    assert fallback is not None
    override = fallback["aten::gelu"].override
    assert override is not None
    assert (override.python, override.plugin) == (None, "g")


def test_later_bases_win_over_earlier_ones_and_each_is_relative_to_its_file(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", "vendor: A\nchip_model: A\nruntime_so: a.so\n")
    write(tmp_path, "sub/b.yaml", "extends: c.yaml\nvendor: B\n")
    write(tmp_path, "sub/c.yaml", "runtime_so: lib/c.so\n")
    chip = load(write(tmp_path, "own.yaml", "extends: [a.yaml, sub/b.yaml]\n"))
    assert (chip.vendor, chip.chip_model) == ("B", "A")
    assert chip.runtime_so == str(tmp_path / "sub" / "lib" / "c.so")


def test_a_mistake_in_a_base_names_the_base(tmp_path: Path) -> None:
    write(
        tmp_path, "base.yaml", "runtime_so: a.so\nsupported_ops:\n  - {name: aten::mm}\n  - {name: aten::mul, imp: x}\n"
    )
    write(tmp_path, "own.yaml", "extends: base.yaml\nsupported_ops:\n  - {name: aten::exp}\n")
    text = errors(tmp_path / "own.yaml")
    assert text.startswith(f"{tmp_path}/base.yaml:4:23: supported_ops[1].imp: ")


def test_a_diamond_is_no_cycle(tmp_path: Path) -> None:
    write(tmp_path, "root.yaml", "runtime_so: a.so\n")
    for name in ("left", "right"):
        write(tmp_path, f"{name}.yaml", "extends: root.yaml\n")
    assert load(write(tmp_path, "own.yaml", "extends: [left.yaml, right.yaml]\n")).runtime_so == "a.so"


def chain(folder: Path, length: int) -> Path:
    write(folder, "0.yaml", "runtime_so: a.so\n")
    for i in range(1, length):
        write(folder, f"{i}.yaml", f"extends: {i - 1}.yaml\n")
    return folder / f"{length - 1}.yaml"


def test_a_chain_may_be_long_but_ends(tmp_path: Path) -> None:
    assert load(chain(tmp_path, MAX_CHAIN)).runtime_so == "a.so"
    assert f"a chain of at most {MAX_CHAIN} descriptors" in errors(chain(tmp_path, MAX_CHAIN + 1))


def test_a_chain_that_branches_again_and_again(tmp_path: Path) -> None:
    write(tmp_path, "0.yaml", "runtime_so: a.so\n")
    for i in range(1, MAX_CHAIN):
        write(tmp_path, f"{i}.yaml", f"extends: [{i - 1}.yaml, {i - 1}.yaml, {i - 1}.yaml]\n")
    assert f"at most {MAX_FILES} descriptors" in errors(tmp_path / f"{MAX_CHAIN - 1}.yaml")


def test_a_cycle_through_a_link(tmp_path: Path) -> None:
    path = write(tmp_path, "a.yaml", "extends: b.yaml\n")
    (tmp_path / "b.yaml").symlink_to(path)
    assert "a chain of extends that ends" in errors(path)


# ---- paths


def test_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "x.yaml", "runtime_so: $SDK_ROOT/lib${SDK_BITS:-64}/libvendor.so\n")
    monkeypatch.setenv("SDK_ROOT", "/opt/$HOME")  # what a variable holds is not looked at again
    assert load(path).runtime_so == "/opt/$HOME/lib64/libvendor.so"
    monkeypatch.setenv("SDK_BITS", "32")
    assert load(path).runtime_so == "/opt/$HOME/lib32/libvendor.so"
    monkeypatch.setenv("SDK_ROOT", "")
    assert "x.yaml:1:13: runtime_so: expected the environment variable SDK_ROOT" in errors(path)


def test_variables_stand_in_paths_only(tmp_path: Path) -> None:
    chip = load(write(tmp_path, "x.yaml", "runtime_so: a.so\nvendor: $HOME\n"))
    assert chip.vendor == "$HOME"


def test_a_bare_name_is_a_file_beside_the_descriptor_or_the_linkers(tmp_path: Path) -> None:
    path = write(tmp_path, "x.yaml", "runtime_so: libvendor.so\n")
    assert load(path).runtime_so == "libvendor.so"
    library = write(tmp_path, "libvendor.so", "")
    assert load(path).runtime_so == str(library)


def test_a_variable_cannot_lead_out_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "d/x.yaml", "runtime_so: $WHERE/libvendor.so\n")
    monkeypatch.setenv("WHERE", "../e")
    assert "expected a path inside" in errors(path)
    monkeypatch.setenv(trust.VARIABLE, "1")
    assert load(path).runtime_so == str(tmp_path / "e" / "libvendor.so")


@pytest.mark.parametrize(("key", "target"), [("runtime_so", "lib.so"), ("extends", "base.yaml")])
def test_a_link_out_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, target: str) -> None:
    outside = write(tmp_path, f"outside/{target}", "runtime_so: a.so\n")
    path = write(tmp_path, "d/x.yaml", f"{key}: {target}\n")
    (tmp_path / "d" / target).symlink_to(outside)
    text = errors(path)
    assert f"leads out of the folder {tmp_path / 'd'}, to {outside}" in text
    assert trust.VARIABLE in text
    monkeypatch.setenv(trust.VARIABLE, "1")
    load(path)


def test_a_linked_folder_does_not_lead_out_either(tmp_path: Path) -> None:
    write(tmp_path, "outside/lib.so", "")
    path = write(tmp_path, "d/x.yaml", "runtime_so: sub/lib.so\n")
    (tmp_path / "d" / "sub").symlink_to(tmp_path / "outside")
    assert "leads out of the folder" in errors(path)


def test_an_absolute_path_says_where(tmp_path: Path) -> None:
    library = write(tmp_path, "sdk/lib.so", "")
    assert load(write(tmp_path, "d/x.yaml", f"runtime_so: {library}\n")).runtime_so == str(library)


# ---- files that are not read


def test_special_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    assert "found a pipe" in errors(tmp_path / "pipe.yaml")
    assert "found a folder" in errors(tmp_path)
    assert "found a device" in errors(Path("/dev/zero"))
    assert "No such file" in errors(tmp_path / "absent.yaml")
    assert "found" in errors(tmp_path / "a\0b.yaml")
    (tmp_path / "loop.yaml").symlink_to(tmp_path / "loop.yaml")
    assert "symbolic links" in errors(tmp_path / "loop.yaml")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_other_encodings(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes("runtime_so: a.so\n".encode(encoding))
    assert "x.yaml:1:1: expected text in UTF-8" in errors(path)


def test_a_byte_order_mark_and_windows_lines(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xef\xbb\xbfruntime_so: a.so\r\nvendro: x\r\n")
    assert "x.yaml:2:1: vendro: " in errors(path)


def test_an_empty_file(tmp_path: Path) -> None:
    assert "x.yaml:1:1: expected a mapping" in errors(write(tmp_path, "x.yaml", ""))


BIG = {
    "file": "#" * MAX_BYTES + "\nruntime_so: a.so\n",
    "values": "runtime_so: a.so\nsupported_ops: [" + "x," * MAX_NODES + "]\n",
    "keys": "runtime_so: a.so\n" + "".join(f"k{i}: 1\n" for i in range(MAX_NODES)),
    "brackets": "a: " + "[" * 500_000,
    "braces": "a: " + "{" * 500_000,
    "dashes": "- " * 500_000,
    "questions": "? " * 500_000,
    "duplicates": "runtime_so: a.so\n" + "vendor: x\n" * 30_000,
    "documents": "---\n" * 250_000,
    "policies": "runtime_so: a.so\nfallback_policy:\n  op_specific:\n"
    + "".join(f"    x{i}: y\n" for i in range(19_000)),
    "operators": "runtime_so: a.so\nsupported_ops:\n" + "".join(f"- {{name: x{i}}}\n" for i in range(9_000)),
    "types": "runtime_so: a.so\ncapabilities:\n  dtypes: [" + "flaot32, " * 30_000 + "]\n",
    "digits": "driver_version: " + "9" * 1_000_000,
    "text": 'runtime_so: "' + "x" * 1_000_000 + '"\n',
    "escapes": 'runtime_so: "' + "\\\n" * 400_000 + '"\n',
}


@pytest.mark.parametrize("name", BIG)
def test_large_texts_end_soon(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, "x.yaml", BIG[name])
    start = time.process_time()
    errors(path)
    assert time.process_time() - start < 2


# ---- whom to believe


@pytest.mark.parametrize("mode", [0o646, 0o666, 0o777])
def test_a_file_that_everybody_can_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    path = write(tmp_path, "x.yaml", "runtime_so: a.so\n")
    path.chmod(mode)
    text = errors(path)
    assert f"{path} can be written by everybody" in text
    assert trust.VARIABLE in text
    monkeypatch.setenv(trust.VARIABLE, "1")
    assert load(path).runtime_so == "a.so"


@pytest.mark.parametrize("what", ["x.yaml", "."])
def test_a_group_with_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    path = write(tmp_path, "x.yaml", "runtime_so: a.so\n")
    (tmp_path / what).chmod(0o775)
    monkeypatch.setattr(trust, "_alone", lambda group, owner: True)
    load(path)
    monkeypatch.setattr(trust, "_alone", lambda group, owner: False)
    assert "can be written by the group" in errors(path)


def test_a_group_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    import grp
    import pwd
    from types import SimpleNamespace as Entry

    users = [Entry(pw_name="root", pw_uid=0, pw_gid=0), Entry(pw_name="me", pw_uid=7, pw_gid=7)]
    groups = {7: Entry(gr_mem=[]), 8: Entry(gr_mem=["me", "root"]), 9: Entry(gr_mem=["me", "other"])}
    monkeypatch.setattr(pwd, "getpwall", lambda: users)
    monkeypatch.setattr(grp, "getgrgid", lambda group: groups[group])
    assert [trust._alone(group, 7) for group in (7, 8, 9, 10)] == [True, True, False, False]
    users.append(Entry(pw_name="guest", pw_uid=11, pw_gid=7))
    assert not trust._alone(7, 7)


@pytest.mark.parametrize("levels", [1, 2])
def test_a_folder_that_everybody_can_write(tmp_path: Path, levels: int) -> None:
    path = write(tmp_path, "a/b/x.yaml", "runtime_so: a.so\n")
    folder = path.parents[levels - 1]
    folder.chmod(0o777)
    assert f"the folder {folder} can be written by everybody" in errors(path)
    folder.chmod(0o1777)  # as /tmp: others may add files, but not rename those that are there
    if levels == 1:
        assert f"the folder {folder} can be written by everybody" in errors(path)
    else:
        assert load(path).runtime_so == "a.so"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user(tmp_path: Path) -> None:
    path = write(tmp_path, "x.yaml", "runtime_so: a.so\n")
    os.chown(path, 12345, 12345)
    assert "belongs to the user 12345, who is neither root nor you" in errors(path)


def test_a_library_that_everybody_can_write(tmp_path: Path) -> None:
    library = write(tmp_path, "lib/libvendor.so", "")
    library.chmod(0o666)
    text = errors(write(tmp_path, "x.yaml", "runtime_so: lib/libvendor.so\n"))
    assert f"x.yaml:1:13: runtime_so: expected a library that nobody else can change, found {library}" in text


def test_a_base_that_everybody_can_write(tmp_path: Path) -> None:
    write(tmp_path, "base.yaml", "runtime_so: a.so\n").chmod(0o666)
    text = errors(write(tmp_path, "x.yaml", "vendor: V\nextends: base.yaml\n"))
    assert "x.yaml:2:10: extends: expected a file that nobody else can change" in text


LIST = """
    import json, torch, torch_fl
    print(json.dumps([[p.path, p.source, p.loaded, p.reason] for p in torch_fl.list_plugins()]))
"""


def listed(folder: Path, **environment: str) -> dict[str, tuple[bool, str]]:
    rows = json.loads(succeed(LIST, TORCH_FL_PLUGIN_PATH=str(folder), **environment))
    return {Path(path).name: (loaded, reason) for path, _, loaded, reason in rows}


def test_plugins_that_others_could_change_are_skipped_with_the_reason(tmp_path: Path) -> None:
    folder = tmp_path / "plugins"
    folder.mkdir()
    compile_plugin(folder, "mine")
    compile_plugin(folder, "open").chmod(0o777)
    (tmp_path / "elsewhere").mkdir()
    (folder / "libfl_link.so").symlink_to(compile_plugin(tmp_path / "elsewhere", "link"))
    write(folder, "open.fl.yaml", "runtime_so: libfl_mine.so\n").chmod(0o666)
    write(folder, "wrong.fl.yaml", "runtime_so: libfl_mine.so\nvendro: x\n")
    found = listed(folder)
    assert found["libfl_mine.so"] == (True, "")
    assert not found["libfl_open.so"][0]
    assert "can be written by everybody" in found["libfl_open.so"][1]
    assert not found["libfl_link.so"][0]
    assert "leads out of the folder" in found["libfl_link.so"][1]
    assert not found["open.fl.yaml"][0]
    assert "can be written by everybody" in found["open.fl.yaml"][1]
    assert not found["wrong.fl.yaml"][0]
    assert f"{folder}/wrong.fl.yaml:2:1: vendro: expected one of the keys" in found["wrong.fl.yaml"][1]
    believed = listed(folder, **{trust.VARIABLE: "1"})
    assert believed["libfl_open.so"] == believed["libfl_link.so"] == (True, "")
    assert not believed["wrong.fl.yaml"][0]


def test_a_folder_without_plugins_is_reported_and_nothing_in_it_is_loaded(tmp_path: Path) -> None:
    compile_plugin(tmp_path, "x").rename(tmp_path / "libother.so")
    found = listed(tmp_path)
    assert list(found) == [tmp_path.name]
    assert "expected a folder with *.fl.yaml or" in found[tmp_path.name][1]


# ---- what stands in schema.json


def as_json(folder: Path, text: str) -> Any:
    """Return what an editor checks: keys are text."""
    return json.loads(json.dumps(reader.read(str(write(folder, "x.yaml", text))).plain()))


def accepted_by_schema(value: Any) -> bool:
    return jsonschema.Draft202012Validator(json.loads(schema.FILE.read_text())).is_valid(value)


def test_the_committed_schema_is_current() -> None:
    assert schema.FILE.read_text() == schema.text(), "run python -m torch_fl.chips.descriptor.schema"
    jsonschema.Draft202012Validator.check_schema(schema.generate())


def test_the_schema_takes_what_the_models_take(tmp_path: Path) -> None:
    jsonschema.validate(as_json(tmp_path, FULL), schema.generate())
    assert accepted_by_schema({"extends": "base.yaml"})
    assert accepted_by_schema({"runtime_so": "a.so", "$schema": "x"})


REFUSED = [
    "{}",
    "vendor: x",
    "{runtime_so: a.so, vendro: x}",
    "{runtime_so: 5}",
    "{runtime_so: a.so, name: a b}",
    "{runtime_so: a.so, vendor: [x]}",
    "{runtime_so: a.so, device_type: NPU}",
    "{runtime_so: a.so, capabilities: {dtypes: [half]}}",
    "{runtime_so: a.so, capabilities: {memory: {total: 4gib}}}",
    "{runtime_so: a.so, supported_ops: {aten::mm: x}}",
    "{runtime_so: a.so, supported_ops: [{impl: x}]}",
    "{runtime_so: a.so, supported_ops: [{name: mm}]}",
    "{runtime_so: a.so, supported_ops: [{name: aten::mm, impl: {half: x}}]}",
    "{runtime_so: a.so, supported_ops: [{name: aten::mm, constraints: {size_multiple: {x: 1}}}]}",
    "{runtime_so: a.so, supported_ops: [{name: aten::mm, constraints: {ndim: four}}]}",
    "{runtime_so: a.so, fallback_policy: {default: alow}}",
    "{runtime_so: a.so, fallback_policy: {op_specific: {sort: deny}}}",
    "{runtime_so: a.so, fallback_policy: {op_specific: {aten::sort: {overide: {}}}}}",
    "{runtime_so: a.so, runtime: {init: {impl: f}}}",
]


@pytest.mark.parametrize("text", REFUSED)
def test_the_schema_refuses_what_the_models_refuse(tmp_path: Path, text: str) -> None:
    assert not accepted_by_schema(as_json(tmp_path, text))
    errors(write(tmp_path, "x.yaml", text))


def test_every_key_has_a_description() -> None:
    document = schema.generate()
    for name, model in {"Descriptor": document, **document["$defs"]}.items():
        for key, value in model["properties"].items():
            assert "description" in value or "$ref" in value, f"{name}.{key}"


def test_without_descriptors_neither_pydantic_nor_yaml_is_imported() -> None:
    code = """
        import sys, torch, torch_fl
        torch_fl.list_plugins()
        print(sorted({"pydantic", "pydantic_core", "yaml", "torch_fl.chips.descriptor"} & set(sys.modules)))
    """
    result = run_python(code)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[]"


def test_a_name_that_pytorch_uses_is_a_warning(tmp_path: Path) -> None:
    (problem,) = validate(write(tmp_path, "a.yaml", "device_type: size\nruntime_so: libvendor.so\n"))
    assert problem.severity == "warning"
    assert problem.line == 1
    assert "PyTorch has no use of its own for, found 'size'" in str(problem)
