# SPDX-License-Identifier: Apache-2.0
"""Print folder, version, C++ ABI and extension suffix of the torch of this interpreter, without importing torch."""

import importlib.util
import re
import sys
import sysconfig
from pathlib import Path


def main() -> int:
    """Write the facts as one CMake list."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        print("torch is not installed; install it first, then build without build isolation:", file=sys.stderr)
        print("  pip install torch==2.13.0 && pip install --no-build-isolation .", file=sys.stderr)
        return 1
    root = Path(next(iter(spec.submodule_search_locations)))
    version = re.search(r"__version__ = '([^'+]+)", (root / "version.py").read_text())
    config = (root / "share" / "cmake" / "Torch" / "TorchConfig.cmake").read_text()
    abi = re.search(r"_GLIBCXX_USE_CXX11_ABI=(\d)", config)
    if version is None:
        print(f"{root / 'version.py'} does not state a version", file=sys.stderr)
        return 1
    facts = (str(root), version[1], abi[1] if abi else "1", sysconfig.get_config_var("EXT_SUFFIX"))
    print(";".join(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
