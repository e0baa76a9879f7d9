"""Parameters of a build of an environment, and the folders that it works in."""

import secrets
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from workers.node_agent.backends.base import BuildLog
from workers.node_agent.conda_packages import CondaPlan
from workers.node_agent.package_archives import FetchArchive, fetch_all, no_archives
from workers.node_agent.requirement_lines import NodeRequirements


@dataclass(frozen=True)
class BuildPlan:
    """Parameters of a build. Without a project it is for all projects, and of wheels alone.

    Those may be `in_any_version` that the requirements allow, or only in the newest. `wheels` are
    the exact versions of such a build, which one for a project has to differ from. `fetch` gets
    the archives that the requirements name.
    """

    home: Path
    python: str
    requirements: NodeRequirements
    project: str | None
    log: BuildLog
    in_any_version: bool = True
    wheels: str = ""
    conda: CondaPlan | None = None
    fetch: FetchArchive = no_archives

    def create_attempt(self) -> tuple[Path, Path]:
        """Folders for a new attempt to build, in place of what earlier ones left unfinished."""
        for old in self.home.glob("attempt-*"):
            shutil.rmtree(old, ignore_errors=True)
        for manifest in self.home.glob("manifest-*"):
            manifest.unlink()
        (self.home / "compiled").unlink(missing_ok=True)
        attempt = self.home / f"attempt-{secrets.token_hex(4)}"
        scratch = self.home / f"{attempt.name}.tmp"
        attempt.mkdir(mode=0o755)
        scratch.mkdir(mode=0o700)
        self.write_requirements(scratch)
        # The scratch folder is the home of each step, where uv and pip look for it.
        netrc = scratch / ".netrc"
        netrc.touch(mode=0o600)
        netrc.write_text(self.requirements.netrc, "utf-8")
        return attempt, scratch

    async def with_archives(self, scratch: Path) -> "BuildPlan":
        """Fetch the archives into the scratch folder, and return the plan that installs from there.

        Raises StartError.
        """
        if not self.requirements.archives:
            return self
        self.log.write(f"Fetching {len(self.requirements.archives)} archives of the code.\n")
        folder = scratch / "archives"
        await fetch_all(self.fetch, self.requirements, folder)
        plan = replace(self, requirements=self.requirements.with_archives_in(folder))
        plan.write_requirements(scratch)
        return plan

    def write_requirements(self, scratch: Path) -> None:
        """Write the files that steps of the build read the requirements from."""
        text = self.requirements.file(has_indexes=False)
        (scratch / "requirements.txt").write_text(text, "utf-8")
        (scratch / "constraints.txt").write_text(self.requirements.constraints, "utf-8")
