"""The two folders of a server's file browser: the project's workspace, and `personal` in it.

`personal` exists only in paths of Jupyter's API, so nothing in the workspace can take its place.
Members of the project write into the workspace, links too. A link there that leads into the
personal folder is refused: what is saved through it would become a start-up file, for instance.
"""

import errno
import os
from pathlib import Path
from typing import Any, Final

from jupyter_core.paths import is_hidden
from jupyter_server.services.contents import filemanager
from jupyter_server.services.contents.filecheckpoints import AsyncFileCheckpoints
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from jupyter_server.utils import ApiPath
from traitlets import default

from workers.lab.notices import NoticeError
from workers.lab.personal import PERSONAL, path_in_personal, personal_folder

_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404


class LinkRefused(NoticeError, PermissionError):
    """The path leads through the workspace into the personal folder: 403, and not listed."""

    def __init__(self, path: str) -> None:
        super().__init__(_FORBIDDEN, f"{path} is a link into a personal folder.")
        self.errno = errno.EACCES


def refuse_links_into_personal(os_path: str, path: str) -> None:
    """Raise LinkRefused where a path of the workspace ends in the personal folder."""
    if Path(os.path.realpath(os_path)).is_relative_to(personal_folder().resolve()):
        raise LinkRefused(path)


def _is_hidden(abs_path: str, abs_root: str = "") -> bool:
    """Return whether a path is hidden, relative to the personal folder for paths inside it.

    Jupyter supports only one root.
    """
    personal = personal_folder()
    root = personal if Path(abs_path).is_relative_to(personal) else Path(abs_root)
    return bool(is_hidden(abs_path, root))


class PersonalFolderMixin:
    """Mixin of contents and checkpoints: paths below `personal` are in the personal folder."""

    def _get_os_path(self, path: str) -> str:
        rest = path_in_personal(path)
        if rest is None:
            os_path: str = super()._get_os_path(path)  # type: ignore[misc]
            refuse_links_into_personal(os_path, path)
            return os_path
        root = str(personal_folder())
        os_path = os.path.normpath(os.path.join(root, rest))  # noqa: PTH118 - not resolved
        if "\0" in rest or not Path(os_path).is_relative_to(root):
            raise NoticeError(_NOT_FOUND, f"{path} is outside the personal folder")
        return os_path


class Checkpoints(PersonalFolderMixin, AsyncFileCheckpoints):
    """Checkpoints beside their files, never through a link into the personal folder."""

    def checkpoint_path(self, checkpoint_id: str, path: str) -> str:
        """Return the file of a checkpoint. Raises LinkRefused."""
        os_path: str = super().checkpoint_path(checkpoint_id, path)  # type: ignore[no-untyped-call]
        if path_in_personal(path) is None:
            refuse_links_into_personal(os_path, path)
        return os_path


class Contents(PersonalFolderMixin, AsyncLargeFileManager):  # type: ignore[misc]
    """The workspace, and in its first folder the person's own."""

    @default("checkpoints_class")
    def _checkpoints_class_default(self) -> type[Checkpoints]:
        return Checkpoints

    async def is_hidden(self, path: str) -> bool:
        """Return whether a path is hidden. Paths in the personal folder are relative to it."""
        return _is_hidden(self._get_os_path(path.strip("/")), self.root_dir)

    async def _dir_model(self, path: str, content: bool = True) -> dict[str, Any]:
        model: dict[str, Any] = await super()._dir_model(path, content)  # type: ignore[no-untyped-call]
        if content and not path.strip("/"):
            others = [entry for entry in model["content"] if entry["name"] != PERSONAL]
            personal = await self.get(PERSONAL, content=False)  # type: ignore[no-untyped-call]
            model["content"] = [personal, *others]
        return model

    async def delete_file(self, path: str) -> None:
        """Delete a file or folder, but not the personal folder itself."""
        self._require_not_personal(path)
        await super().delete_file(path)  # type: ignore[no-untyped-call]

    async def rename_file(self, old_path: str, new_path: str) -> None:
        """Rename a file or folder, but not the personal folder itself."""
        self._require_not_personal(old_path)
        self._require_not_personal(new_path)
        await super().rename_file(old_path, new_path)  # type: ignore[no-untyped-call]

    def _require_not_personal(self, path: str) -> None:
        if path_in_personal(path) == "":
            raise NoticeError(_FORBIDDEN, "The personal folder cannot be changed.")


class Kernels(AsyncMappingKernelManager):
    """Kernels start in the folder of their notebook, without one in the workspace."""

    def cwd_for_path(self, path: str, **options: Any) -> str:
        """Return the folder of a notebook, or the closest one above that exists."""
        rest = path_in_personal(path)
        if rest is None:
            return str(super().cwd_for_path(path, **options))  # type: ignore[no-untyped-call]
        personal = personal_folder()
        folder = Path(os.path.normpath(personal / rest))
        while not folder.is_dir() and folder != personal and folder.is_relative_to(personal):
            folder = folder.parent
        return str(folder if folder.is_relative_to(personal) else personal)

    async def start_kernel(  # type: ignore[override]
        self, *, kernel_id: str | None = None, path: ApiPath | None = None, **options: Any
    ) -> str:
        """Start a kernel. The folder of the server itself is nobody's to work in."""
        place = ApiPath("") if path is None else path
        return str(await super().start_kernel(kernel_id=kernel_id, path=place, **options))


vars(filemanager)["is_hidden"] = _is_hidden
