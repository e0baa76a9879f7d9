"""Catalogue of the documentation: the pages that the portal serves, in groups.

`tests/portal/web/test_docs.py` checks that each page of `docs/` is in a group.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from django.conf import settings


@dataclass(frozen=True)
class DocsFile:
    """A page of the documentation: its name in the URL, and its file from the source's root."""

    slug: str
    path: str

    @property
    def file(self) -> Path:
        """The file itself."""
        return Path(settings.SLIPWAY_ROOT) / self.path


def _user_page(slug: str) -> DocsFile:
    return DocsFile(slug, f"docs/{slug}.md")


def _design_page(slug: str) -> DocsFile:
    return DocsFile(f"architecture-{slug}", f"docs/architecture/{slug}.md")


GROUPS: tuple[tuple[str, tuple[DocsFile, ...]], ...] = (
    (
        "Get started",
        tuple(
            map(
                _user_page, ("quickstart", "concepts", "install", "cli", "sdk", "comparison", "faq")
            )
        ),
    ),
    ("Data and notebooks", tuple(map(_user_page, ("datasets", "notebooks", "notebook-files")))),
    (
        "Train and compare",
        tuple(
            map(
                _user_page,
                (
                    *(
                        "training",
                        "frameworks",
                        "ray",
                        "sweeps",
                        "pipelines",
                        "schedules",
                        "pools",
                        "slurm",
                        "kubernetes",
                        "node-groups",
                    ),
                    *("environments", "strategies", "experiments", "mlflow"),
                ),
            )
        ),
    ),
    (
        "Serve and monitor",
        tuple(
            map(
                _user_page,
                ("models", "endpoints", "predictions", "batch_predictions", "monitoring"),
            )
        ),
    ),
    ("Share", (_user_page("reports"), _user_page("service-accounts"))),
    ("Cost", (_user_page("spend"),)),
    (
        "Operate",
        (
            *map(_user_page, ("operating", "deploying", "backup")),
            DocsFile("security", "SECURITY.md"),
            DocsFile("changelog", "CHANGELOG.md"),
            _user_page("licences"),
        ),
    ),
    (
        "How it works",
        (
            DocsFile("architecture", "ARCHITECTURE.md"),
            *map(
                _design_page,
                (
                    "workloads",
                    "isolation",
                    "notebooks",
                    "datasets",
                    "sweeps",
                    "pipelines",
                    "pools",
                    "node-groups",
                    "relay",
                    "tracking",
                    "serving",
                    "monitoring",
                    "spend",
                    "reports",
                ),
            ),
        ),
    ),
)
# Their examples show addresses that operators choose, so they remain as they are written.
AS_WRITTEN = frozenset({"operating", "deploying", "backup", "security", "changelog"})


@cache
def files_by_slug() -> dict[str, DocsFile]:
    """Return every page by its name in the URL."""
    return {file.slug: file for _, files in GROUPS for file in files}


@cache
def slugs_by_path() -> dict[str, str]:
    """Return the name in the URL of every page by its path in the source."""
    return {file.path: file.slug for file in files_by_slug().values()}


# Path of the index, which the portal writes itself.
INDEX_PATH = "docs/README.md"
