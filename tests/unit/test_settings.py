# SPDX-License-Identifier: Apache-2.0
"""Settings, against a recorder in the extension's place: no device is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import torch_fl
from torch_fl import _load
from torch_fl.configuration import environment, settings
from torch_fl.configuration.table import SETTINGS


class Recorder:
    """Takes the calls that the extension would get."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []  # of set_policy without its name, since most are

    def __getattr__(self, name: str) -> Any:
        named = () if name == "set_policy" else (name,)
        return lambda *values: self.calls.append((*named, *values))


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(_load, "core", lambda: recorder)
    monkeypatch.setattr(settings, "_values", {})
    monkeypatch.setattr(settings, "_sources", {})
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for variable in environment.known() - {"TORCH_FL_PLUGIN_PATH"}:
        monkeypatch.delenv(variable, raising=False)
    return recorder


def given() -> dict[str, Any]:
    """The settings that somebody set."""
    return {key: value for key, value in torch_fl.get_config().items() if torch_fl.config_sources()[key] != "default"}


def test_default_policy(core: Recorder) -> None:
    assert torch_fl.get_config("fallback") == "allow"
    torch_fl.set_config("fallback", "deny")
    assert torch_fl.get_config("fallback") == "deny"
    assert core.calls == [("", "deny")]


def test_setting_the_same_value_again_keeps_the_plans(core: Recorder) -> None:
    torch_fl.set_config("fallback", "allow")  # said once, it wins over descriptors
    torch_fl.set_config("fallback", "allow")
    assert core.calls == [("", "allow")]


@pytest.mark.parametrize("spelling", ["aten::sort", "sort"])
def test_policy_of_one_operator(core: Recorder, spelling: str) -> None:
    torch_fl.set_config("fallback", {spelling: "warn"})
    torch_fl.set_config(f"fallback.{spelling}.stable", "deny")
    assert torch_fl.get_config("fallback.aten::sort") == "warn"
    assert torch_fl.get_config("fallback.aten::sort.stable") == "deny"
    assert torch_fl.get_config("fallback.aten::sort.values") == "warn"
    assert torch_fl.get_config("fallback.aten::topk") == "allow"
    torch_fl.set_config("fallback.aten::sort", None)
    assert torch_fl.get_config("fallback.aten::sort") == "allow"
    assert core.calls == [("aten::sort", "warn"), ("aten::sort.stable", "deny"), ("aten::sort", "")]


def test_all_settings(core: Recorder) -> None:
    torch_fl.set_config("fallback", {"sort": "deny"})
    assert given() == {"fallback.aten::sort": "deny"}
    assert set(torch_fl.get_config()) - {"fallback.aten::sort"} == {key for key in SETTINGS if key != "route"}


def test_context_manager_restores_everything(core: Recorder) -> None:
    torch_fl.set_config("fallback", {"aten::sort": "warn"})
    with torch_fl.config(fallback="deny"):
        torch_fl.set_config("fallback", {"aten::sort": "deny", "aten::topk": "allow"})
        assert torch_fl.get_config("fallback") == "deny"
    assert given() == {"fallback.aten::sort": "warn"}


def test_context_manager_restores_after_an_error(core: Recorder) -> None:
    with pytest.raises(ZeroDivisionError), torch_fl.config(fallback="deny"):
        raise ZeroDivisionError
    assert torch_fl.get_config("fallback") == "allow"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("falback", "deny", "no setting 'falback'; did you mean 'fallback'"),
        ("nonsense.aten::add", "deny", "no setting 'nonsense.aten::add'"),
        ("fallback", "alow", "'alow' is not one of allow, warn, deny; did you mean 'allow'"),
        ("fallback", None, "None is not one of allow, warn, deny"),
        ("fallback", {"aten::sort": "never"}, "fallback.aten::sort: 'never' is neither None nor one of"),
        ("fallback", {"aten::sortt": "deny"}, "no operator 'aten::sortt'; did you mean 'aten::sort'"),
        ("fallback.aten::add.Tensr", "deny", "aten::add has no overload 'Tensr'; did you mean 'Tensor'"),
        (3, "deny", "no setting 3"),
        (
            "fallback.",
            "deny",
            "no setting 'fallback.'; did you mean 'fallback'? (settings: log_level, fallback, ",
        ),
        ("fallback. \t", "deny", "no setting 'fallback. \\t'"),
        (".fallback", "deny", "no setting '.fallback'; did you mean 'fallback'"),
        ("fallback.aten::add.", "deny", "aten::add has no overload '' (overloads: Tensor"),
        ("fallback", {"": "deny"}, "no operator '': expected a name such as"),
        ("fallback", {3: "deny"}, "no operator 3: expected a name such as"),
        ("fallback.aten::sort.int", "deny", "aten::sort has no overload 'int'"),  # TorchScript's alone
    ],
)
def test_mistakes_are_explained(core: Recorder, key: Any, value: Any, message: str) -> None:
    with pytest.raises(torch_fl.ConfigError) as error:
        torch_fl.set_config(key, value)
    assert message in str(error.value)
    assert core.calls == []


@pytest.mark.parametrize("key", ["fallback.", ".fallback", "fallback.aten::sortt", "fallback.aten::sort.stabl"])
def test_reading_refuses_unknown_keys(core: Recorder, key: str) -> None:
    with pytest.raises(torch_fl.ConfigError, match=r"no setting|no operator|no overload"):
        torch_fl.get_config(key)


def test_a_context_can_be_kept_and_entered_again(core: Recorder) -> None:
    deny = torch_fl.config(fallback="deny")
    for _ in range(2):
        with deny, deny:
            assert torch_fl.get_config("fallback") == "deny"
        assert torch_fl.get_config("fallback") == "allow"
    torch_fl.set_config("fallback", "warn")
    with deny:
        pass
    assert torch_fl.get_config("fallback") == "warn"


def test_a_context_decorates_functions(core: Recorder) -> None:
    @torch_fl.config(fallback="deny")
    def policy(depth: int) -> list[str]:
        return [torch_fl.get_config("fallback"), *(policy(depth - 1) if depth else [])]

    assert policy(1) == policy(1) == ["deny", "deny"]
    assert torch_fl.get_config("fallback") == "allow"


def test_a_mistake_in_a_mapping_changes_nothing(core: Recorder) -> None:
    with pytest.raises(torch_fl.ConfigError):
        torch_fl.set_config("fallback", {"aten::sort": "deny", "aten::nope": "deny"})
    assert core.calls == []


def test_environment(core: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FL_FALLBACK", " warn, aten::sort=deny,topk = allow,")
    settings.start(core)
    assert given() == {
        "fallback": "warn",
        "fallback.aten::sort": "deny",
        "fallback.aten::topk": "allow",
    }
    assert core.calls == [("", "warn"), ("aten::sort", "deny"), ("aten::topk", "allow")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("denny", ": 'denny' is not one of allow, warn, deny; did you mean 'deny'"),
        ("deny,aten::nosuch=allow", ": 'aten::nosuch=allow': no operator 'aten::nosuch'"),
        (
            "sort.stabel=deny",
            ": 'sort.stabel=deny': operator aten::sort has no overload 'stabel'; did you mean 'stable'",
        ),
        ("aten::a=b=deny", ": 'aten::a=b=deny': no operator 'aten::a=b'"),
        ("my lib::op=deny", ": 'my lib::op=deny': no operator 'my lib::op'"),
        ("aten::sort=never", " for aten::sort: 'never' is not one of allow, warn, deny"),
        ("aten::sort=", " for aten::sort: '' is not one of allow, warn, deny"),
        (",", "=',': nothing before a comma"),
        ("deny,,aten::sort=allow", "='deny,,aten::sort=allow': nothing before a comma"),
        ("=deny", ": '=deny' names no operator, expected <operator>=<value>"),
        ("deny,warn", "='deny,warn': two values for all operators, 'deny' and 'warn'; keep one"),
        (
            "sort=deny,aten::sort=warn",
            "='sort=deny,aten::sort=warn': two values for operator 'aten::sort', 'deny' and 'warn'",
        ),
    ],
)
def test_mistakes_in_the_environment_are_explained(text: str, message: str) -> None:
    with pytest.raises(torch_fl.ConfigError) as error:
        environment.parse(SETTINGS["fallback"], text, "TORCH_FL_FALLBACK")
    assert f"TORCH_FL_FALLBACK{message}" in str(error.value)


def test_operators_of_libraries_that_come_later_cannot_be_checked() -> None:
    values = environment.parse(SETTINGS["fallback"], "mylib::op.out=deny", "TORCH_FL_FALLBACK")
    assert values == {"fallback.mylib::op.out": "deny"}


@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_environment_says_nothing(text: str) -> None:
    assert environment.parse(SETTINGS["fallback"], text, "TORCH_FL_FALLBACK") == {}
