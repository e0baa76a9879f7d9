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
            "This version is no longer a draft; its files cannot change.",
            next_step="Create a new version of the dataset.",
        )
