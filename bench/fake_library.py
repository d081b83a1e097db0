"""A machine of eight H100 whose NVML library answers at once, so that a figure is the program's and not the fake's."""

import os
import shutil
import subprocess
from pathlib import Path

from fakes import filesystem, nodes

SOURCE = Path(__file__).with_name("nvml_at_once.c")


def build(folder: Path) -> dict[str, str]:
    """Build the library and the machine's files, and return the environment of a process that finds both there.

    Takes the C compiler of the machine, `cc` or what `CC` names.
    """
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("this row needs a C compiler (cc): it measures with a library that answers at once")
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE)], check=True)
    root = folder / "root"
    filesystem.render(nodes.node("h100x8"), root)
    return {"LD_LIBRARY_PATH": str(folder), "ACCELERATOR_HOST_ROOT": str(root)}
