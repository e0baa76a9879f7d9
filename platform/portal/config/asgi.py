"""The portal as an ASGI application."""

import os
from typing import cast

import django
from asgiref.typing import ASGI3Application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.config.settings")
# The modules below import models, which requires that the apps are loaded.
django.setup(set_prefix=False)

from portal.api.agent.long_poll import hold  # noqa: E402
from portal.api.dashboards.app import DashboardApplication  # noqa: E402
from portal.api.mlflow.app import MlflowApplication  # noqa: E402
from portal.config.env import env  # noqa: E402
from portal.config.host_check import HostCheck  # noqa: E402
from portal.config.hosts import dashboard_domains, dashboards_url, served_hosts  # noqa: E402
from portal.config.limits import BodyLimit  # noqa: E402
from portal.config.uploads import UploadHandler  # noqa: E402

application = HostCheck(
    DashboardApplication(
        MlflowApplication(BodyLimit(hold(cast("ASGI3Application", UploadHandler())))),
        dashboard_domains(env()),
        dashboards_url(env()),
    ),
    served_hosts(env()),
    trusts_proxies=env().trusted_proxies > 0,
)
