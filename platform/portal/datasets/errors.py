"""Errors of datasets, in addition to those of the core.

SlipwayError
└── Conflict
    └── NotADraft      409  the version is no draft any more, so its files never change
"""

from portal.core.errors import Conflict


class NotADraft(Conflict):
    default_code = "not_a_draft"

    def __init__(self) -> None:
        super().__init__(
            "This version is not a draft any more; its files never change.",
            next_step="Begin a new version of the dataset.",
        )
