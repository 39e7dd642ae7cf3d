# SPDX-License-Identifier: Apache-2.0
"""Where plugins are looked for, and in which order."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from torch_fl.chips import discovery


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Point every place at an empty one; tests fill them."""
    for variable in (discovery.REPLACING, *discovery.ADDING):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(discovery, "SYSTEM_FOLDER", str(tmp_path / "system"))
    monkeypatch.setattr(discovery, "__file__", str(tmp_path / "chips" / "discovery.py"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])


def make(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def fill_all_places(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(root / "system" / "libfl_e.so")
    make(root / "chips" / "own" / "libfl_f.so")
    make(root / "config" / "torch-fl" / "plugins" / "libfl_d.so")
    make(root / "site" / "vendor_pkg" / "__init__.py")
    make(root / "site" / "vendor_pkg" / "libfl_c.so")
    entry = "[torch_fl.plugins]\nvendor = vendor_pkg\n[console_scripts]\nx = y:z\n"
    make(root / "site" / "vendor-1.0.dist-info" / "entry_points.txt", entry)
    monkeypatch.setenv("TORCH_FL_ADD_PLUGIN_PATH", str(make(root / "add" / "a.so")))
    monkeypatch.setenv("TORCHFL_DEVICE_DIR", str(make(root / "alias" / "libfl_b.so").parent))


def names() -> list[str]:
    return [Path(path).name for path, _ in discovery.candidates()]


def test_no_plugin_anywhere() -> None:
    assert discovery.candidates() == []


def test_order_of_all_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_all_places(tmp_path, monkeypatch)
    sources = [source for _, source in discovery.candidates()]
    assert names() == ["a.so", "libfl_b.so", "libfl_c.so", "libfl_d.so", "libfl_e.so", "libfl_f.so"]
    assert sources == [
        "TORCH_FL_ADD_PLUGIN_PATH",
        "TORCHFL_DEVICE_DIR",
        "entry point vendor",
        "user configuration",
        str(tmp_path / "system"),
        "built-in",
    ]


@pytest.mark.parametrize(("value", "expected"), [("", []), ("only/libfl_x.so", ["libfl_x.so"])])
def test_replacing_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, expected: list[str]) -> None:
    fill_all_places(tmp_path, monkeypatch)
    make(tmp_path / "only" / "libfl_x.so")
    monkeypatch.setenv("TORCH_FL_PLUGIN_PATH", str(tmp_path / value) if value else "")
    assert names() == [*expected, "a.so", "libfl_b.so"]


def test_folder_takes_plugins_in_it_and_one_level_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("libfl_b.so", "libvendor_sdk.so", "z/libfl_a.so", "z/y/libfl_deep.so", "readme.txt"):
        make(tmp_path / "p" / name)
    monkeypatch.setenv("TORCH_FL_PLUGIN_PATH", str(tmp_path / "p"))
    assert names() == ["libfl_b.so", "libfl_a.so"]


def test_several_paths_keep_their_order_and_each_file_comes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second, first = make(tmp_path / "b" / "libfl_2.so"), make(tmp_path / "a" / "libfl_1.so")
    link = tmp_path / "c" / "libfl_3.so"
    link.parent.mkdir()
    link.symlink_to(first)
    monkeypatch.setenv("TORCH_FL_PLUGIN_PATH", f"{second}::{first}:{link.parent}:{second.parent}")
    assert names() == ["libfl_2.so", "libfl_1.so"]


def test_a_path_without_a_plugin_is_kept_to_be_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = str(tmp_path / "missing.so")
    monkeypatch.setenv("TORCH_FL_PLUGIN_PATH", missing)
    assert discovery.candidates() == [(missing, "TORCH_FL_PLUGIN_PATH")]


def test_entry_point_function(tmp_path: Path) -> None:
    make(tmp_path / "site" / "by_function.py", "def paths():\n    return ['/x/one.so', '/x/two.so']\n")
    make(tmp_path / "site" / "f-1.dist-info" / "entry_points.txt", "[torch_fl.plugins]\nf = by_function:paths\n")
    assert discovery.candidates() == [("/x/one.so", "entry point f"), ("/x/two.so", "entry point f")]


@pytest.mark.parametrize("value", ["no_such_module", "broken_module:paths", "broken_module:absent"])
def test_a_broken_package_is_reported_and_stops_nothing(tmp_path: Path, value: str) -> None:
    make(tmp_path / "site" / "broken_module.py", "def paths():\n    raise RuntimeError('no licence')\n")
    make(tmp_path / "site" / "b-1.dist-info" / "entry_points.txt", f"[torch_fl.plugins]\nb = {value}\n")
    make(tmp_path / "chips" / "own" / "libfl_f.so")
    (broken, source), built_in = discovery.candidates()
    assert value in broken
    assert "Error" in broken
    assert source == "entry point b"
    assert built_in[1] == "built-in"


def test_the_distribution_that_comes_first_on_the_path_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for site in ("new", "old"):
        make(tmp_path / site / "pkg.py", f"def paths():\n    return '/{site}.so'\n")
        make(tmp_path / site / f"p-{site}.dist-info" / "entry_points.txt", "[torch_fl.plugins]\np = pkg:paths\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "new"), str(tmp_path / "old"), str(tmp_path / "absent")])
    monkeypatch.delitem(sys.modules, "pkg", raising=False)
    assert names() == ["new.so"]


def test_a_folders_descriptors_come_before_its_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("libfl_a.so", "z.fl.yaml", "sub/y.fl.yml", "notes.yaml", "x.fl.yaml.bak"):
        make(tmp_path / "p" / name)
    monkeypatch.setenv("TORCH_FL_PLUGIN_PATH", str(tmp_path / "p"))
    assert names() == ["y.fl.yml", "z.fl.yaml", "libfl_a.so"]


def test_a_named_file_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FL_PLUGIN_PATH", str(make(tmp_path / "notes.yaml")))
    assert names() == ["notes.yaml"]
    assert discovery.is_descriptor("notes.yaml")
    assert not discovery.is_descriptor("libfl_a.so")


def test_what_others_could_change_is_refused_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "p"
    make(folder / "libfl_open.so").chmod(0o666)
    make(folder / "mine.fl.yaml")
    (folder / "link.fl.yaml").symlink_to(make(tmp_path / "elsewhere.yaml"))
    make(folder / "open" / "libfl_b.so").parent.chmod(0o777)
    monkeypatch.setenv("TORCH_FL_PLUGIN_PATH", str(folder))
    assert names() == ["mine.fl.yaml"]
    reasons = {Path(path).name: reason for path, _, reason in discovery.refused}
    assert "leads out of the folder" in reasons["link.fl.yaml"]
    assert "can be written by everybody" in reasons["libfl_open.so"]
    assert f"the folder {folder / 'open'} can be written by everybody" in reasons["libfl_b.so"]
    assert all("TORCH_FL_ALLOW_UNSAFE_PLUGINS=1" in reason for reason in reasons.values())
    monkeypatch.setenv("TORCH_FL_ALLOW_UNSAFE_PLUGINS", "1")
    assert len(names()) == 4
    assert discovery.refused == []


def test_a_link_inside_the_folder_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versioned = make(tmp_path / "p" / "lib" / "chip.so.1")
    (tmp_path / "p" / "libfl_chip.so").symlink_to(versioned)
    monkeypatch.setenv("TORCH_FL_PLUGIN_PATH", str(tmp_path / "p"))
    assert names() == ["libfl_chip.so"]


def test_a_folder_without_plugins_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "p" / "libvendor.so")
    monkeypatch.setenv("TORCH_FL_PLUGIN_PATH", str(tmp_path / "p"))
    assert names() == []
    assert "found none of these" in discovery.refused[0][2]
