"""The checks behind `portal.core.problems`: a running scheduler, free space on the disk."""

import os

from django.conf import settings
from django.db.models.functions import Now

from portal.compute.resources import count_noun
from portal.config.models import Leadership
from portal.core import problems

SCHEDULER = "scheduler"
DISK = "disk"
BEAT = "beat"
# A restart of the control worker takes a few seconds, which is not worth a message.
_NOTICED_AFTER_S = 5
_LEAST_FREE_MIB = 200
_MIB = 1024 * 1024


def scheduler_problem() -> str:
    """Return a warning with the time since a control worker last held the leader lock of the beat.

    Empty for an installation whose control worker has never run.
    """
    row = Leadership.objects.filter(pk=BEAT).annotate(now=Now()).first()
    if row is None:
        return ""
    missing_s = int((row.now - row.expires_at).total_seconds())
    if missing_s < _NOTICED_AFTER_S:
        return ""
    since = count_noun(missing_s, "second") if missing_s < 120 else f"{missing_s // 60} minutes"
    return (
        f"No control worker has run for {since}, so no work is scheduled, started or stopped. "
        "Slipway's log has the reason."
    )


def disk_problem() -> str:
    """Return a warning if little space is left on the disk of the data folder."""
    try:
        status = os.statvfs(settings.DATA_DIR)
    except OSError as error:
        return f"The data folder cannot be accessed: {error.strerror}."
    free_mib = status.f_bavail * status.f_frsize // _MIB
    if free_mib >= _LEAST_FREE_MIB:
        return ""
    return (
        f"The disk of the data folder has {free_mib} MiB left. Uploads, new work and the capture "
        "of predictions fail until an administrator frees space."
    )


problems.add_check(SCHEDULER, scheduler_problem)
problems.add_check(DISK, disk_problem)
