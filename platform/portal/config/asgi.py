"""The portal as an ASGI application."""

import os
from typing import cast

from asgiref.typing import ASGI3Application
from django.core.asgi import get_asgi_application

from portal.config.limits import BodyLimit

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.config.settings")
application = BodyLimit(cast("ASGI3Application", get_asgi_application()))
