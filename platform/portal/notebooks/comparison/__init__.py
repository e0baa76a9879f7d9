"""Comparing notebooks by nbdime, in a process of its own that holds nothing worth stealing.

What is compared was written by strangers, and comparing takes long for some of it: this process
knows no database, no secret and no Django, and limits its own memory and time.
"""

import sys
from typing import cast

# jsonschema, a dependency of nbformat, works without this module. Building the module's grammar
# would be 80 % of the start-up time of the process, and nothing here needs it.
cast("dict[str, object]", sys.modules).setdefault("rfc3987_syntax", None)
