"""Environments that are images: from a Dockerfile and the files it copies to a digest."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from portal.accounts.models import Project, User
from portal.compute.models import Environment, Node
from portal.compute.services.environments import add_environment


@dataclass(frozen=True)
class ImageSource:
    """A Dockerfile with its build context, the folder `context` of a code snapshot.

    `copied` are the digests of the files that it copies, by their paths from that folder. None
    stands for the whole folder: other code is another image then.
    """

    text: str
    context: str
    snapshot: str
    copied: Mapping[str, str] | None

    @property
    def digest(self) -> str:
        """The hex SHA-256 that names the environment."""
        files = self.snapshot if self.copied is None else sorted(self.copied.items())
        content = json.dumps(["slipway-image-1", self.text, self.context, files])
        return hashlib.sha256(content.encode()).hexdigest()


def use_image(*, project: Project, by: User, source: ImageSource) -> Environment:
    """Return the environment of this Dockerfile, now used by the project too."""
    content = {
        "dockerfile": source.text,
        "context": source.context,
        "copies": None if source.copied is None else sorted(source.copied),
    }
    return add_environment(project, by, source.digest, content)


def offers_backend(name: str) -> bool:
    """Return whether some node offers a back end."""
    return any(
        name in backends for backends in Node.objects.lasting().values_list("backends", flat=True)
    )
