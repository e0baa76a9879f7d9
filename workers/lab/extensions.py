"""Extensions of JupyterLab that an environment may contain: Git, and a meter of resources.

An environment of a person's own requirements need not have them.
"""

import asyncio
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

try:
    from jupyterlab_git_core import git
except ImportError:
    git = None

_OPTIONAL: Final = ("jupyterlab_git", "jupyter_resource_usage")
_NO_REPOSITORY: Final = 128
# Makes git ask for `safe.directory` as it does for repositories of other users.
_OTHER_OWNER: Final = {"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}


def optional_extensions() -> dict[str, bool]:
    """Return the installed ones, as Jupyter's setting takes them."""
    return {name: True for name in _OPTIONAL if find_spec(name) is not None}


def require_trusted_repositories() -> None:
    """Make the Git panel run nothing in a repository that the person does not trust.

    It looks at the folder that is shown, without a click. All members of the project can write
    there, and the configuration of a repository names programs that git runs, even for its status.
    Git's own answer is `safe.directory` in the person's `~/.gitconfig`. It asks for that only if a
    repository has another owner, but all members' tasks run as the same user.
    """
    if git is None:
        return
    execute = git.execute

    async def execute_in_trusted(
        cmdline: list[str],
        cwd: str,
        env: dict[str, str] | None = None,
        *rest: Any,
        **options: Any,
    ) -> Any:
        if not await asyncio.to_thread(Path(cwd).is_dir):
            # `personal`, which only the file browser shows in the workspace.
            return _NO_REPOSITORY, "", "fatal: not a git repository"
        variables = {**(os.environ if env is None else env), **_OTHER_OWNER}
        return await execute(cmdline, cwd, variables, *rest, **options)

    vars(git)["execute"] = execute_in_trusted
