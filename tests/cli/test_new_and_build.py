# SPDX-License-Identifier: Apache-2.0
"""`torch-fl new`, `build`, the project's own tests, and its installation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.helpers import command, output, parsed

KINDS = ["c", "compiler", "yaml", "python"]
PACKAGE = "torch_fl_backend_demo"
# A source of each kind, and how to break it.
RIGHT, WRONG = "x[i] < 0.0f ? 0.0f : x[i]", "x[i]"
SOURCES = {
    "c": ("src/kernels.c", RIGHT, WRONG),
    "compiler": ("src/kernels.c", RIGHT, WRONG),
    "yaml": ("src/demo.c", RIGHT, WRONG),
    "python": (f"{PACKAGE}/chip.py", "np.maximum(arrays[0], np.float32(0))", "arrays[0] + np.float32(0)"),
}


def kind_of(project: Path) -> str:
    return project.parent.name.rstrip("0123456789")


def in_project(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("TORCH_FL", "TORCHFL"))}
    clean["TORCH_FL_CACHE_DIR"] = str(folder / "cache")
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=clean, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="module", params=KINDS)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project from nothing, built as the documents say: in the folder where it was made."""
    folder = tmp_path_factory.mktemp(request.param)
    start = time.monotonic()
    output("new", "demo", "--kind", request.param, cwd=folder)
    output("build", cwd=folder)
    assert time.monotonic() - start < 120
    return folder / "torch-fl-backend-demo"


def test_the_library_lies_beside_the_package(project: Path) -> None:
    if kind_of(project) == "python":
        assert "There is nothing to compile." in output("build", project)
        return
    package = project / PACKAGE
    assert (package / "__init__.py").exists()
    assert (package / ("libdemo.so" if kind_of(project) == "yaml" else "libfl_demo.so")).exists()
    rows = parsed("devices", TORCH_FL_PLUGIN_PATH=str(package))
    assert [row["chip"] for row in rows] == ["demo"]
    assert output("build", project).splitlines()[-2] == f"  export TORCH_FL_ADD_PLUGIN_PATH={package}"


def test_its_own_tests_pass_and_can_fail(project: Path) -> None:
    result = in_project(project, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert result.returncode == 0, result.stdout
    assert " passed" in result.stdout
    name, right, wrong = SOURCES[kind_of(project)]
    source = project / name
    text = source.read_text()
    assert right in text
    source.write_text(text.replace(right, wrong))
    output("build", project)
    broken = in_project(project, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    source.write_text(text)
    output("build", project)
    assert broken.returncode == 1
    assert "test_kernels_run_on_the_chip" in broken.stdout


def test_its_sources_are_formatted(project: Path) -> None:
    tool = Path(sys.executable).with_name("clang-format")
    if not tool.exists():
        pytest.skip("clang-format is not installed")
    sources = [*(project / "src").glob("*.c"), *(project / "src").glob("*.h")]
    assert bool(sources) == (kind_of(project) != "python")
    if sources:
        subprocess.run([tool, "--dry-run", "-Werror", *sources], check=True, cwd=project)
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--line-length", "120", str(project)]
    subprocess.run(ruff, check=True, cwd=project)


def test_it_compiles_without_cmake_and_without_warnings(project: Path, tmp_path: Path) -> None:
    if kind_of(project) == "python":
        pytest.skip("there is nothing to compile")
    copy = tmp_path / "copy"
    shutil.copytree(project, copy, ignore=shutil.ignore_patterns("*.so", "build", "CMakeLists.txt"))
    compiler = f"{shutil.which('cc')} -Werror"
    output("build", copy, CC=compiler)
    assert list((copy / PACKAGE).glob("lib*demo.so"))


def test_it_installs_and_is_found(project: Path, tmp_path: Path) -> None:
    if shutil.which("ninja") is None:
        pytest.skip("ninja is not installed")
    copy = tmp_path / "source"
    shutil.copytree(project, copy, ignore=shutil.ignore_patterns("*.so", "build"))
    site = tmp_path / "site"
    offline = ["--no-build-isolation", "--no-deps", "--no-index"]
    install = ["-m", "pip", "install", "--quiet", *offline, "--target", str(site), "."]
    result = in_project(copy, *install)
    assert result.returncode == 0, result.stderr
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("TORCH_FL", "TORCHFL"))}
    clean["PYTHONPATH"] = f"{site}:{clean.get('PYTHONPATH', '')}"
    code = "import torch, torch_fl; print([d.chip for d in torch_fl.list_devices()])"
    result = subprocess.run([sys.executable, "-c", code], env=clean, capture_output=True, text=True, check=True)
    assert "'demo'" in result.stdout


# ---- Names and places ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["npu", "my-chip", "my_chip2", "a" * 40, "class"])
def test_good_names(tmp_path: Path, name: str) -> None:
    output("new", name, cwd=tmp_path)
    (folder,) = tmp_path.iterdir()
    assert folder.name == "torch-fl-backend-" + name.replace("_", "-")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("MyChip", "for example 'mychip'"),
        ("my chip", "for example 'my-chip'"),
        ("../evil", "for example 'evil'"),
        ("/etc/passwd", "cannot name a chip"),
        ("", "cannot name a chip"),
        ("9lives", "for example 'lives'"),
        ("a--b", "for example 'a-b'"),
        ("a" * 41, "at most 40 characters"),
        ("-", "cannot name a chip"),
        ("chip;rm", "cannot name a chip"),
        ('x"y', "cannot name a chip"),
        ("x\ny", "cannot name a chip"),
        ("{{names}}", "cannot name a chip"),
        ("ünit", "cannot name a chip"),
        ("sim", "ships with torch-fl"),
        ("torch-fl-backend-x", "leave the prefix out"),
    ],
)
def test_bad_names_are_refused_and_nothing_is_written(tmp_path: Path, name: str, hint: str) -> None:
    result = command("new", "--", name, cwd=tmp_path)
    assert result.returncode in (1, 2)
    assert hint in result.stderr
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    for place in ("empty", "file", "link"):
        target = tmp_path / place
        if place == "empty":
            target.mkdir()
        elif place == "file":
            target.write_text("mine")
        else:
            target.symlink_to(tmp_path / "nowhere")
        result = command("new", "demo", "--path", target)
        assert result.returncode == 1
        assert f"{target} exists already; nothing was written" in result.stderr
    assert list((tmp_path / "empty").iterdir()) == []
    assert (tmp_path / "file").read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()


def test_a_place_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = command("new", "demo", "--path", tmp_path / "file" / "inside")
    assert result.returncode == 1
    assert "cannot be made" in result.stderr or "exists already" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_path_with_spaces_and_quotes(tmp_path: Path) -> None:
    folder = tmp_path / "a b" / "c'd"
    output("new", "demo", "--path", folder)
    assert str(folder / "torch_fl_backend_demo" / "libfl_demo.so") in output("build", folder)


# ---- Building ------------------------------------------------------------------------------------------------------


def test_mistakes_in_the_source_are_the_compilers_words(tmp_path: Path) -> None:
    output("new", "demo", cwd=tmp_path)
    source = tmp_path / "torch-fl-backend-demo" / "src" / "kernels.c"
    source.write_text(source.read_text() + "int broken = ;\n")
    result = command("build", cwd=tmp_path)
    assert result.returncode == 1
    assert "kernels.c" in result.stderr
    assert "error: expected expression before" in result.stderr


def test_what_is_no_project_is_refused(tmp_path: Path) -> None:
    result = command("build", tmp_path)
    assert result.returncode == 1
    assert "holds no plugin project: expected a pyproject.toml with" in result.stderr
    result = command("build", tmp_path / "nowhere")
    assert result.returncode == 1
    assert "No such file or directory" in result.stderr


def test_of_several_projects_one_must_be_named(tmp_path: Path) -> None:
    for name in ("one", "two"):
        output("new", name, cwd=tmp_path)
    result = command("build", cwd=tmp_path)
    assert result.returncode == 1
    assert "holds several plugin projects; say which:" in result.stderr


def test_without_a_compiler(tmp_path: Path) -> None:
    output("new", "demo", cwd=tmp_path)
    (tmp_path / "torch-fl-backend-demo" / "CMakeLists.txt").unlink()
    result = command("build", cwd=tmp_path, CC="no-such-compiler")
    assert result.returncode == 1
    assert "no compiler: CC=no-such-compiler not found on the PATH" in result.stderr
