# SPDX-License-Identifier: Apache-2.0
"""``torch-fl run``: the script is what it would be without, and the summary says what became of its calls."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.cli.helpers import COMMAND, command

WORK = """
import torch
x = torch.rand(8, 8, device="fl")
torch.poisson(x @ x)
"""


def script(folder: Path, text: str, name: str = "script.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def plain(*words: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python itself."""
    return subprocess.run(
        [sys.executable, *map(str, words)], cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )


def without_summary(stderr: str) -> str:
    return stderr.partition("torch-fl: ")[0]


NAMES = """
import pickle, sys, threading
import torch
class Point: pass
assert type(pickle.loads(pickle.dumps(Point()))) is Point
print(sys.argv, __name__, __file__, sys.path[0], __spec__ and __spec__.name, sys.flags.utf8_mode, __doc__)
print(sys.modules["__main__"].Point is Point, threading.current_thread() is threading.main_thread())
"""


def test_a_script_sees_what_python_shows_it(tmp_path: Path) -> None:
    path = script(tmp_path, NAMES)
    words = [path, "--deny", "-m", "x y", "--", "--help"]
    mine, its = command("run", *words), plain(*words)
    assert mine.stdout == its.stdout
    assert mine.returncode == its.returncode == 0
    assert mine.stderr == "torch-fl: no operator was called on a device\n"


def test_a_module_is_run_as_python_runs_it(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    script(tmp_path / "pack", "", "__init__.py")
    script(tmp_path / "pack", NAMES, "__main__.py")
    mine, its = (
        command("run", "-m", "pack", "--device", "a", cwd=tmp_path),
        plain("-m", "pack", "--device", "a", cwd=tmp_path),
    )
    assert its.returncode == 0
    assert mine.stdout == its.stdout


@pytest.mark.parametrize(
    "ending, status",
    [
        ("raise SystemExit", 0),
        ("raise SystemExit(7)", 7),
        ("import sys; sys.exit('farewell')", 1),
        ("def f():\n    raise ValueError('half way')\nf()", 1),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("import os, sys; sys.stdout.flush(); os._exit(9)", 9),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("import atexit; atexit.register(print, 'bye')", 0),
        ("x = (", 1),
    ],
)
def test_it_ends_as_without(tmp_path: Path, ending: str, status: int) -> None:
    its = plain(script(tmp_path, "\n" * WORK.count("\n") + f"\n{ending}\n"))  # without waiting for torch
    mine = command("run", script(tmp_path, f"{WORK}\n{ending}\n"))
    assert (mine.returncode, mine.stdout) == (its.returncode, its.stdout)
    assert mine.returncode == status
    assert without_summary(mine.stderr) == its.stderr
    summarised = "aten::poisson" in mine.stderr.removeprefix(its.stderr)
    assert summarised == (not ending.startswith(("import os", "x =")))


def test_ctrl_c_reaches_the_script(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        WORK + "import time\ntry:\n    print('ready', flush=True)\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    print('caught')\n    raise SystemExit(5)\n",
    )
    with subprocess.Popen(
        [*COMMAND, "run", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # tests in the background ignore it
    ) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        started.send_signal(signal.SIGINT)
        out, err = started.communicate(timeout=60)
    assert (out, started.returncode) == ("caught\n", 5)
    assert "aten::poisson" in err


def test_children_work_and_only_the_script_itself_reports(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        """
import multiprocessing, os, sys, subprocess
import torch
class Point: pass
def work(point):
    assert type(point).__name__ == "Point"
    return float(torch.ones(3, device="cuda").sum())
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print(pool.map(work, [Point(), Point()]), flush=True)
    if os.fork() == 0:
        sys.exit(0)
    os.wait()
    print(float(torch.ones(3, device="cuda").sum()))
""",
    )
    done = command("run", "--alias-cuda", "--summary", tmp_path / "summary.json", path)
    assert done.stdout == "[3.0, 3.0]\n3.0\n", done.stderr
    assert done.stderr.count("torch-fl:") == 1
    assert json.loads((tmp_path / "summary.json").read_text())["routes"] == {"kernel": 2}


def test_the_summary(tmp_path: Path) -> None:
    path, file = script(tmp_path, WORK), tmp_path / "summary.json"
    done = command("run", "--summary", file, path, "--lr", "0.1")
    found = json.loads(file.read_text())
    assert found["version"] == 1
    assert found["calls"] == sum(found["routes"].values())
    assert found["routes"]["host"] == 1
    assert found["on_chip"] == (found["calls"] - 1) / found["calls"]
    (worst,) = found["host"]
    assert (worst["name"], worst["calls"], worst["syncs"]) == ("aten::poisson", 1, 1)
    assert worst["ns"] == found["host_ns"] > 0
    assert "no kernel" in worst["reason"]
    assert f"{found['calls']} operator calls, {found['on_chip']:.1%} on the chip" in done.stderr
    assert f"torch-fl report {path} -o report.html -- --lr 0.1" in done.stderr
    assert oct(file.stat().st_mode & 0o777) == oct(0o666 & ~_umask())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("end", ["os.close(2)", "sys.stderr.close()", "sys.stderr = None"])
def test_a_folder_change_and_closed_streams_do_no_harm(end: str, tmp_path: Path) -> None:
    path = script(tmp_path, WORK + f"import os, sys\nos.chdir('/')\n{end}\n")
    done = command("run", "--summary", "here.json", path, cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout == ""
    assert json.loads((tmp_path / "here.json").read_text())["routes"]["host"] == 1


def test_deny(tmp_path: Path) -> None:
    done = command("run", "--deny", script(tmp_path, WORK))
    assert done.returncode == 1
    assert "UnsupportedOpError: aten::poisson cannot run on chip" in done.stderr


def test_a_device_for_what_names_none(tmp_path: Path) -> None:
    path = script(tmp_path, "import torch\nprint(torch.ones(2).device, torch.ones(2, device='fl').device)\n")
    assert command("run", "--device", "fl:1", path).stdout == "fl:1 fl:1\n"
    assert command("run", path).stdout == "cpu fl:0\n"
    done = command("run", "--device", "fl:77", path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "torch-fl run: " in done.stderr
    assert "no device 'fl:77'" in done.stderr


@pytest.mark.parametrize(
    "words, text",
    [
        ([], "no script; usage: torch-fl run"),
        (["--device"], "requires an argument"),
        (["--profile=x", "--summary", "x", "x.py"], "x: expected a file of its own"),
        (["--nonsense", "x.py"], "No such option"),
    ],
)
def test_mistakes_in_the_command(words: list[str], text: str) -> None:
    done = command("run", *words)
    assert done.returncode == 2
    assert text in done.stderr


def test_a_file_that_cannot_be_written_is_told_first(tmp_path: Path) -> None:
    path = script(tmp_path, "print('ran')\n")
    for file in (tmp_path / "none" / "s.json", tmp_path):
        done = command("run", "--summary", file, path)
        assert (done.returncode, done.stdout) == (2, "")
        assert str(file) in done.stderr


def test_a_script_that_is_not_there() -> None:
    done, its = command("run", "/no/such.py"), plain("/no/such.py")
    assert done.returncode == its.returncode == 2
    assert "No such file" in done.stderr


def test_a_link_stays_a_link_and_its_file_gets_the_text(tmp_path: Path) -> None:
    path = script(tmp_path, WORK)
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("old")
    real.chmod(0o600)
    link.symlink_to(real)
    assert command("run", "--summary", link, path).returncode == 0
    assert link.is_symlink()
    assert json.loads(real.read_text())
    assert real.stat().st_mode & 0o777 == 0o600


def test_a_stream_by_its_name_is_written_to_and_stays(tmp_path: Path) -> None:
    path, out = script(tmp_path, "print('first')\n" + WORK), tmp_path / "out.txt"
    with out.open("w") as stdout:
        done = subprocess.run(
            [*COMMAND, "run", "--summary", "/proc/self/fd/1", path], stdout=stdout, timeout=300, check=False
        )
    assert done.returncode == 0
    first, _, rest = out.read_text().partition("\n")
    assert first == "first"
    assert json.loads(rest)


def test_a_summary_that_cannot_be_written_is_printed_all_the_same(tmp_path: Path) -> None:
    done = command("run", "--summary", "/dev/full", script(tmp_path, WORK))
    assert done.returncode == 0
    assert "aten::poisson" in done.stderr
    assert "No space left" in done.stderr


def test_scripts_that_compile_are_watched_too(tmp_path: Path) -> None:
    text = """
import torch
m = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).to("fl")
print(torch.compile(m, backend="eager", fullgraph=True)(torch.ones(4, 8, device="fl")).shape)
"""
    done = command("run", f"--profile={tmp_path}/p.json", script(tmp_path, text))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "torch.Size([4, 8])\n"
