"""What the room of datasets adds to the world of the matrix: a dataset of two versions."""

import hashlib

from portal.accounts.models import Project, User
from portal.datasets.models import DataTable, Version
from portal.datasets.services.datasets import create_dataset
from portal.datasets.services.drafts import accept_pieces, commit_draft, declare_files, open_draft
from portal.datasets.version_checks import check_waiting
from slipway.schemas.datasets import DataFileIn
from slipway.schemas.statistics import TableStatistics


def make_versions(*, project: Project, by: User, name: str) -> Version:
    """Make a dataset with two versions of one file each; return the newer one."""
    dataset = create_dataset(project=project, by=by, name=name)
    for content in (b"first", by.email.encode()):
        draft = open_draft(dataset=dataset, by=by)
        digest = hashlib.sha256(content)
        file = DataFileIn(path="a.bin", size_bytes=len(content), pieces=[digest.hexdigest()])
        declare_files(draft=draft, files=[file])
        frame = digest.digest() + len(content).to_bytes(8) + content
        accept_pieces(project=project, by=by, chunks=[frame])
        commit_draft(draft=draft)
        check_waiting()
    newest = Version.objects.ready().complete().get(dataset=dataset, number=2)
    DataTable.objects.create(
        version=newest,
        name="a.csv",
        format="csv",
        files=1,
        statistics=TableStatistics(rows=0).model_dump(mode="json"),
    )
    return newest
