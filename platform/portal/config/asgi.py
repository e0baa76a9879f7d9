"""The portal as an ASGI application."""

import os
from typing import cast

import django
from asgiref.typing import ASGI3Application

from portal.api.agent.holding import HoldDesired
from portal.config.limits import BodyLimit
from portal.config.uploads import UploadHandler

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.config.settings")
django.setup(set_prefix=False)
application = BodyLimit(HoldDesired(cast("ASGI3Application", UploadHandler())))
