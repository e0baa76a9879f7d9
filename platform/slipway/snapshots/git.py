"""Git state of a folder: its files, the checked-out commit, and uncommitted changes.

Nothing of the repository is changed, and neither hooks, pagers, external diff programs nor text
converters of its configuration are run.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from slipway.sanitize import visible
from slipway.schemas.training import MAX_DIFF_CHARACTERS, GitFacts

PATIENCE_S = 120.0
_MOST_CHANGED_FILES = 2_000
_LONGEST_NEW_FILE_BYTES = 256 * 1024
_DEEPEST_NESTING = 8
_ROOM_FOR_NOTES = 500
# Variables that would direct git to another repository, as they do in a hook.
_MISLEADING = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"),
    *("GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_PREFIX", "GIT_EXTERNAL_DIFF"),
    *("GIT_DIFF_OPTS", "GIT_GLOB_PATHSPECS", "GIT_NOGLOB_PATHSPECS", "GIT_ICASE_PATHSPECS"),
)
_SETTINGS = (
    *("-c", "core.quotePath=false", "-c", "core.fsmonitor=false"),
    *("-c", "core.bigFileThreshold=8m", "-c", "core.hooksPath=/dev/null"),
)
_DIFF = (
    *("diff", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--relative"),
    *("--src-prefix=a/", "--dst-prefix=b/", "--submodule=short"),
)


class GitFailed(Exception):
    """Git is missing, does not trust the folder, or the folder is in no repository."""


@dataclass
class GitFileListing:
    """The files of a folder, relative to it: those under version control and the others."""

    tracked: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)


def list_files(folder: Path) -> GitFileListing:
    """Return the files git lists in `folder`, without ignored ones, or raise GitFailed.

    Repositories inside it, submodules or not, are listed like folders.
    """
    git_file_listing = GitFileListing()
    _list_into(git_file_listing, folder, "", depth=0)
    return git_file_listing


def git_facts(
    folder: Path, *, new_files: Sequence[str], is_private: Callable[[str], bool]
) -> GitFacts | None:
    """Return the commit, branch and remote, and the diff of what is not committed in `folder`.

    `new_files` are files git does not know yet, shown as added. Of files that `is_private` names no
    line is shown. None where there is no commit yet. Raises GitFailed.
    """
    try:
        commit = _lines(folder, "rev-parse", "--verify", "HEAD^{commit}")[0]
    except GitFailed:
        _run(folder, "rev-parse", "--git-dir")
        return None
    branch = _optional(folder, "symbolic-ref", "--quiet", "--short", "HEAD")
    shown = [path for path in new_files if not is_private(path)]
    diff, is_dirty = _uncommitted(folder, shown, is_private)
    return GitFacts(
        commit=commit,
        branch=_truncate(branch, 250),
        remote=_truncate(without_credentials(_remote(folder, branch)), 500),
        is_dirty=is_dirty,
        diff=diff,
    )


def without_credentials(url: str) -> str:
    """Return the URL of a remote without user, password and query, or "" where unclear."""
    if "://" not in url:
        # The short form of scp, user@host:path: a name is not a secret, but user:password is.
        user, at, rest = url.partition("@")
        return f"{user}@{rest}" if at and ":" not in user else ("" if at else url)
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return ""
    if parts.scheme == "ssh" and parts.username == "git":
        host = f"git@{host}"
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def _list_into(git_file_listing: GitFileListing, folder: Path, prefix: str, *, depth: int) -> None:
    inner = folder / prefix
    for tracked, options in ((True, ("--cached",)), (False, ("--others", "--exclude-standard"))):
        for name in _names(_run(inner, "ls-files", "-z", *options)):
            path = prefix + name.removesuffix("/")
            whole = folder / path
            if whole.is_dir() and not whole.is_symlink():
                if depth < _DEEPEST_NESTING and _is_repository(whole):
                    _list_into(git_file_listing, folder, f"{path}/", depth=depth + 1)
            else:
                (git_file_listing.tracked if tracked else git_file_listing.others).append(path)


def _is_repository(folder: Path) -> bool:
    try:
        return _lines(folder, "rev-parse", "--show-cdup") in ([], [""])
    except GitFailed:
        return False


def _remote(folder: Path, branch: str) -> str:
    """Return the address the branch is pushed to, as it is written in the configuration."""
    names = _optional(folder, "config", "--get-regexp", "--name-only", r"^remote\..*\.url$")
    remotes = [name[len("remote.") : -len(".url")] for name in names.splitlines()]
    own = _optional(folder, "config", "--get", f"branch.{branch}.remote") if branch else ""
    for remote in (own, "origin", *remotes):
        if remote in remotes:
            return _optional(folder, "config", "--get", f"remote.{remote}.url")
    return ""


def _uncommitted(
    folder: Path, new_files: Sequence[str], is_private: Callable[[str], bool]
) -> tuple[str, bool]:
    """Return the diff against the last commit, bounded, and whether anything is not committed."""
    changed = _names(_run(folder, *_DIFF, "--name-only", "-z", "HEAD", "--"))
    kept = [path for path in changed if not is_private(path)]
    budget = MAX_DIFF_CHARACTERS - _ROOM_FOR_NOTES
    parts: list[str] = []
    is_cut = False
    if kept:
        named = kept[:_MOST_CHANGED_FILES]
        text, is_cut = _bounded(folder, budget, *_DIFF, "HEAD", "--", *named)
        parts.append(text)
        budget -= len(text)
        is_cut = is_cut or len(kept) > len(named)
    for path in new_files:
        text = "" if is_cut else _added(folder, path)
        if is_cut or len(text) > budget:
            is_cut = True
            break
        parts.append(text)
        budget -= len(text)
    if is_cut:
        parts.append(
            "# Cut here, because the diff is long; the snapshot holds every file as it was.\n"
        )
    if len(kept) < len(changed):
        parts.append("# Files that look like secrets, or are left out, have changed as well.\n")
    return "".join(parts), bool(changed or new_files)


def _bounded(folder: Path, limit: int, *arguments: str) -> tuple[str, bool]:
    """Return the diff git writes, and whether it was cut (behind a whole file) to fit `limit`."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            ["git", *_SETTINGS, *arguments],
            cwd=folder,
            env=_environment() | {"GIT_LITERAL_PATHSPECS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        with process:
            assert process.stdout is not None  # noqa: S101  (a pipe, see above)
            raw = process.stdout.read(4 * limit + 1)
            if len(raw) > 4 * limit:
                process.kill()
    text = raw.decode(errors="replace").replace("\0", "\ufffd")
    if len(text) <= limit:
        return text, False
    return text[: text.rfind("\ndiff --git ", 0, limit) + 1], True


def _added(folder: Path, path: str) -> str:
    """Return a file that git does not know as a diff that adds it."""
    name = visible(path) if '"' not in path else '"' + path.replace('"', '\\"') + '"'
    whole = folder / path
    try:
        if whole.is_symlink() or whole.stat().st_size > _LONGEST_NEW_FILE_BYTES:
            return f"# New and not shown here: {name}\n"
        is_executable = bool(whole.stat().st_mode & 0o100)
        content = whole.read_bytes()
    except OSError:
        return ""
    head = f"diff --git a/{name} b/{name}\nnew file mode 100{'755' if is_executable else '644'}\n"
    if b"\0" in content:
        return f"{head}Binary files /dev/null and b/{name} differ\n"
    if not content:
        return head
    lines = content.decode(errors="replace").split("\n")
    ending = "" if lines[-1] == "" else "\n\\ No newline at end of file\n"
    if not ending:
        lines.pop()
    blank = "\t" if " " in name else ""
    count = "" if len(lines) == 1 else f",{len(lines)}"
    body = "\n".join(f"+{line}" for line in lines) + (ending or "\n")
    return f"{head}--- /dev/null\n+++ b/{name}{blank}\n@@ -0,0 +1{count} @@\n{body}"


def _truncate(text: str, length: int) -> str:
    return visible(text.strip())[:length].strip()


def _optional(folder: Path, *arguments: str) -> str:
    """Return the answer of git, or "" where it has none."""
    try:
        return os.fsdecode(_run(folder, *arguments)).rstrip("\n")
    except GitFailed:
        return ""


def _lines(folder: Path, *arguments: str) -> list[str]:
    return os.fsdecode(_run(folder, *arguments)).splitlines()


def _names(output: bytes) -> list[str]:
    return [os.fsdecode(name) for name in output.split(b"\0") if name]


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _MISLEADING}
    return kept | {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


def _run(folder: Path, *arguments: str) -> bytes:
    """Return the output of one git command, or raise GitFailed with the first line of its error."""
    if shutil.which("git") is None:
        raise GitFailed("git is not installed")
    try:
        done = subprocess.run(
            ["git", *_SETTINGS, *arguments],
            cwd=folder,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=PATIENCE_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GitFailed(f"git cannot be asked: {error}") from None
    if done.returncode:
        complaint = done.stderr.decode(errors="replace").strip().splitlines()
        raise GitFailed(complaint[0] if complaint else f"git ended with {done.returncode}")
    return done.stdout
