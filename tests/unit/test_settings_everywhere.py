# SPDX-License-Identifier: Apache-2.0
"""Every setting, from the program, the environment and the file, against a recorder in the extension's place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import torch_fl
from tests.unit.test_settings import Recorder, core, given
from torch_fl.configuration import file, settings

__all__ = ["core"]  # the fixture


@pytest.mark.parametrize(
    ("key", "value", "call"),
    [
        ("memory_pool_size", 512, ("set_memory_pool_size", 512 << 20)),
        ("async_execution", False, ("set_async_execution", False)),
        ("log_level", "debug", ("set_log_level", 0)),
        ("log_level", "error", ("set_log_level", 3)),
        ("adapter_cache_mb", 7, ("set_adapter_cache_mb", 7)),
        ("precision", "high", ("set_full_precision", True)),
        ("route.aten::add", "host", ("set_route", "aten::add", "host")),
        ("route.add.Tensor", "portable", ("set_route", "aten::add.Tensor", "portable")),
    ],
)
def test_settings_reach_the_core_once(core: Recorder, key: str, value: Any, call: tuple[Any, ...]) -> None:
    with torch_fl.config(**{key: value}):
        assert torch_fl.get_config(key) == value
        torch_fl.set_config(key, value)
        assert core.calls == [call]
    assert len(core.calls) == 2
    assert given() == {}


def test_the_fusion_level_is_kept_for_the_graph_compiler(core: Recorder) -> None:
    torch_fl.set_config("fusion_level", "aggressive")
    assert torch_fl.get_config("fusion_level") == "aggressive"
    assert core.calls == []


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("memory_pool_sise", 1, "no setting 'memory_pool_sise'; did you mean 'memory_pool_size'"),
        ("memory_pool_size", -1, "-1 is not a whole number of megabytes"),
        ("memory_pool_size", True, "True is not a whole number"),
        ("memory_pool_size", "12", "'12' is not a whole number"),
        ("memory_pool_size", 1 << 62, "is not a whole number of megabytes from 0 to"),
        ("async_execution", 1, "1 is not True or False"),
        ("fusion_level", "agressive", "did you mean 'aggressive'"),
        ("precision", "higher", "'higher' is not one of default, high"),
        ("route", "host", "route is set for single operators"),
        ("route.aten::add", "hots", "'hots' is neither None nor one of kernel, portable, override, decomposed, host"),
        ("route.aten::addd", "host", "no operator 'aten::addd'"),
        ("precision.aten::add", "high", "no setting 'precision.aten::add'"),
        ("visible_devices", "0", "set TORCH_FL_VISIBLE_DEVICES before Python starts"),
        ("preferred_device", 1.5, "1.5 is no device"),
        ("preferred_device", "", "'' is no device"),
        ("default_device", True, "True is no device"),
    ],
)
def test_wrong_values_are_explained(core: Recorder, key: str, value: Any, message: str) -> None:
    with pytest.raises(torch_fl.ConfigError) as error:
        torch_fl.set_config(key, value)
    assert message in str(error.value)
    assert core.calls == []
    assert given() == {}


@pytest.mark.parametrize(
    ("variable", "text", "key", "value"),
    [
        ("TORCH_FL_MEMORY_POOL_SIZE", " 64 ", "memory_pool_size", 64),
        ("TORCH_FL_ASYNC_EXECUTION", "Off", "async_execution", False),
        ("TORCH_FL_ASYNC_EXECUTION", "1", "async_execution", True),
        ("TORCH_FL_LOG", "info", "log_level", "info"),
        ("TORCH_FL_LOG_LEVEL", "error", "log_level", "error"),
        ("TORCH_FL_ROUTE", "add=host", "route.aten::add", "host"),
        ("TORCH_FL_PRECISION", "high", "precision", "high"),
        ("TORCH_FL_VISIBLE_DEVICES", "1, 0", "visible_devices", ("1", "0")),
        ("TORCH_FL_VISIBLE_DEVICES", "", "visible_devices", ()),
        ("TORCH_FL_EXCLUDE_DEVICES", "fl:1", "exclude_devices", ("fl:1",)),
    ],
)
def test_every_variable_is_read(
    core: Recorder, monkeypatch: pytest.MonkeyPatch, variable: str, text: str, key: str, value: Any
) -> None:
    monkeypatch.setenv(variable, text)
    settings.start(core)
    assert torch_fl.get_config(key) == value
    assert torch_fl.config_sources()[key] == variable


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("TORCH_FL_MEMORY_POOL_SIZE", "1.5", "TORCH_FL_MEMORY_POOL_SIZE: '1.5' is not a whole number"),
        ("TORCH_FL_ASYNC_EXECUTION", "maybe", "TORCH_FL_ASYNC_EXECUTION: 'maybe' is not one of 1, true"),
        ("TORCH_FL_LOG", "inof", "TORCH_FL_LOG: 'inof' is not one of debug, info, warning, error; did you mean 'info'"),
        ("TORCH_FL_ROUTE", "host", "TORCH_FL_ROUTE: 'host' names no operator"),
        ("TORCH_FL_FALBACK", "deny", "no setting has the variable TORCH_FL_FALBACK; did you mean 'TORCH_FL_FALLBACK'"),
        ("TORCH_FL_VISIBLE_DEVICES", "0,,1", "has nothing beside a comma"),
    ],
)
def test_mistakes_in_variables_are_explained(
    core: Recorder, monkeypatch: pytest.MonkeyPatch, variable: str, text: str, message: str
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(torch_fl.ConfigError) as error:
        settings.start(core)
    assert message in str(error.value)


# ---- The file ----------------------------------------------------------------------------------------------------

FILE = """\
# for this machine
fallback: {default: warn, aten::sort: deny}
fallback.aten::topk: allow
route:
  aten::add: host
memory_pool_size: 256
async_execution: off
visible_devices: [fl:1, 0]
"""


def write(folder: Path, text: str) -> Path:
    target = folder / "torch-fl" / "config.yaml"
    target.parent.mkdir()
    target.write_text(text)
    return target


def test_the_file_is_read_and_lines_are_the_sources(core: Recorder, tmp_path: Path) -> None:
    target = write(tmp_path, FILE)
    settings.start(core)
    assert given() == {
        "fallback": "warn",
        "fallback.aten::sort": "deny",
        "fallback.aten::topk": "allow",
        "route.aten::add": "host",
        "memory_pool_size": 256,
        "async_execution": False,
        "visible_devices": ("fl:1", "0"),
    }
    sources = torch_fl.config_sources()
    assert sources["memory_pool_size"] == f"{target}:6"
    assert sources["route.aten::add"] == f"{target}:5"
    assert sources["precision"] == "default"
    assert ("set_memory_pool_size", 256 << 20) in core.calls


def test_program_wins_over_environment_over_file(
    core: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    target = write(tmp_path, "memory_pool_size: 1\nadapter_cache_mb: 1\nfusion_level: conservative\n")
    monkeypatch.setenv("TORCH_FL_MEMORY_POOL_SIZE", "2")
    monkeypatch.setenv("TORCH_FL_ADAPTER_CACHE_MB", "2")
    settings.start(core)
    torch_fl.set_config("memory_pool_size", 3)
    assert given() == {"memory_pool_size": 3, "adapter_cache_mb": 2, "fusion_level": "conservative"}
    sources = torch_fl.config_sources()
    assert sources["memory_pool_size"] == "set_config"
    assert sources["adapter_cache_mb"] == "TORCH_FL_ADAPTER_CACHE_MB"
    assert sources["fusion_level"] == f"{target}:3"


def test_a_block_restores_value_and_source(core: Recorder, tmp_path: Path) -> None:
    target = write(tmp_path, "memory_pool_size: 5\n")
    settings.start(core)
    with torch_fl.config(memory_pool_size=6, precision="high"):
        assert torch_fl.config_sources()["memory_pool_size"] == "set_config"
    assert given() == {"memory_pool_size": 5}
    assert torch_fl.config_sources()["memory_pool_size"] == f"{target}:1"


def test_a_variable_names_another_file_or_none(core: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write(tmp_path, "precision: high\n")
    other = tmp_path / "other.yaml"
    other.write_text("fusion_level: aggressive\n")
    monkeypatch.setenv("TORCH_FL_CONFIG", str(other))
    assert list(file.read()) == ["fusion_level"]
    monkeypatch.setenv("TORCH_FL_CONFIG", "")
    assert file.read() == {}
    monkeypatch.setenv("TORCH_FL_CONFIG", str(tmp_path / "none.yaml"))
    with pytest.raises(torch_fl.ConfigError, match=r"none\.yaml: no such file"):
        file.read()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fusion_level: balanced\nfallbak: warn\n", ":2: no setting 'fallbak'; did you mean 'fallback'"),
        ("fallback:\n  aten::sort: warn\n  aten::tokp: deny\n", ":3: no operator 'aten::tokp'; did you mean"),
        ("fallback: {aten::sort: alow}\n", ":1: fallback.aten::sort: 'alow' is neither None nor one of"),
        ("memory_pool_size: lots\n", ":1: memory_pool_size: 'lots' is not a whole number"),
        ("memory_pool_size: 1\n\nmemory_pool_size: 2\n", ":3: memory_pool_size is set twice, first at "),
        ("- fallback\n", ":1: expected lines of the form `setting: value`, found a sequence"),
        ("fallback: [warn\n", ":2:1: expected ',' or ']'"),
        ("3: warn\n", ":1: no setting 3"),
        ("fallback: !!python/object/apply:os.getcwd []\n", ":1:11: could not determine a constructor"),
        ("route: host\n", ":1: route is set for single operators"),
    ],
)
def test_mistakes_in_the_file_are_located(core: Recorder, tmp_path: Path, text: str, message: str) -> None:
    target = write(tmp_path, text)
    with pytest.raises(torch_fl.ConfigError) as error:
        settings.start(core)
    assert f"{target}{message}" in str(error.value)


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_an_empty_file_says_nothing(core: Recorder, tmp_path: Path, text: str) -> None:
    write(tmp_path, text)
    assert file.read() == {}


def test_a_file_that_is_no_text(core: Recorder, tmp_path: Path) -> None:
    write(tmp_path, "").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(torch_fl.ConfigError, match="cannot be read"):
        file.read()
