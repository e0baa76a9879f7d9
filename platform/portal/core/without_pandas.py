"""Keep pandas out of a process that reads tables with pyarrow alone.

pyarrow imports pandas, where it is installed, to recognize its values. That is a third of the
processor time that such a process takes to start. Import this module before pyarrow is used.
"""

import sys


class _Refusal:
    """A finder of modules that reports pandas as not installed."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not used in this process", name=name)


sys.meta_path.insert(0, _Refusal)
