"""Comparing notebooks by nbdime, in a process of its own that holds nothing worth stealing.

What is compared was written by strangers, and comparing takes long for some of it: this process
knows no database, no secret and no Django, and limits its own memory and time.
"""

import sys
from typing import cast

# jsonschema, which nbformat brings, does without this where it is missing; building its grammar is
# four fifths of the time the process would take to start, and nothing here needs it.
cast("dict[str, object]", sys.modules).setdefault("rfc3987_syntax", None)
