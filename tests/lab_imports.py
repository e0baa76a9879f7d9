"""Everyday use of a kernel, and the modules that it imports without anybody naming them."""

from pathlib import Path
from typing import Final

# Records the name of every module that is looked for, found or not.
RECORDER: Final = """
import sys
class _Recorder:
    names = set()
    def find_spec(self, name, path=None, target=None):
        self.names.add(name.partition(".")[0])
sys.meta_path.insert(0, _Recorder())
"""
RECORDED: Final = (
    "import json; print('recorded', json.dumps(sorted(_Recorder.names"
    " | {name.partition('.')[0] for name in sys.modules})))"
)
_RUN_MODULE: Final = """
import subprocess, sys
subprocess.run([sys.executable, '-m', 'json.tool', '--help'], check=True)
"""
_SPAWN: Final = """
import multiprocessing
with multiprocessing.get_context('spawn').Pool(1) as pool:
    print(pool.map(abs, [-1]))
"""
# What kernels start as processes of their own.
PROCESSES: Final = (
    "%pip list",
    "!python -c 'import json, pandas'",
    "%%script python\nimport json, pandas",
    _RUN_MODULE,
    _SPAWN,
)
CELLS: Final = (
    "1/0",
    "def f(:",
    "!ls",
    "%%bash\nls",
    "%%capture\nprint(1)",
    "%matplotlib inline",
    "import matplotlib.pyplot as plt\nplt.plot([1, 2])",
    "print?",
    "print??",
    "import pathlib\npathlib.Path??",
    "%timeit -n1 -r1 1",
    "%prun -q 1",
    "%who",
    "%history",
    "%load_ext autoreload",
    "%autoreload 2",
    "await __import__('asyncio').sleep(0)",
    "open('script_of_mine.py', 'w').write('import json, pandas, csv')",
    "%run script_of_mine.py",
    "%run -m this",
    "import slipway",
    "import mlflow",
    "import pandas\npandas.DataFrame({'a': [1]})",
    "import importlib.metadata\nlist(importlib.metadata.entry_points())",
    "from IPython.display import display, HTML\ndisplay(HTML('a'))",
)
COMPLETIONS: Final = (
    *("import os\nos.pa", "x = [1]\nx.", "import js", "from json import ", "import planted_one."),
    *("%lo", "open('", "import pandas\npandas.DataFrame.", "from planted_one import "),
)
INSPECTED: Final = ("print", "print(", "len", "planted_one")
# None of these may be planted: they are the kernel's own, and no module of any package.
OWN: Final = frozenset({"__main__", "script_of_mine"})


def plant(folder: Path, names: set[str]) -> None:
    """Put a module of each name into `folder` that leaves a trace beside it when it runs."""
    for name in names:
        trace = folder / f"ran-{name}"
        text = f"open({str(trace)!r}, 'w').close()\nraise ImportError({name!r})\n"
        (folder / f"{name}.py").write_text(text)


def traces(folder: Path) -> list[str]:
    """Return the names of the planted modules that ran."""
    return sorted(path.name.removeprefix("ran-") for path in folder.glob("ran-*"))
