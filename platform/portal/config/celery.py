"""The Celery app: Redis carries notifications, the database holds the truth.

The settings ensure the following:
- A frozen Redis costs a request less than a second and not a minute.
- A notification leaves no result behind.
- A worker takes one message at a time.
- A message is acknowledged after the work, and is redelivered only after longer than any task
  may last.
"""

import os

from celery import Celery

from portal.config.env import env

# A task that takes longer is a bug, and the control worker that runs it restarts.
TASK_LIMIT_S = 300
_VISIBILITY_TIMEOUT_S = 3600
_SOCKET_TIMEOUT_S = 0.75
# Concurrent messages of one process, see `portal.core.enqueue`.
_CONNECTIONS = 16

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.config.settings")

app = Celery("slipway")
# The current app is set per thread, and requests run in other threads: set the default app.
app.set_default()
app.conf.update(
    broker_url=env().redis,
    broker_transport_options={
        "socket_timeout": _SOCKET_TIMEOUT_S,
        "socket_connect_timeout": _SOCKET_TIMEOUT_S,
        "socket_keepalive": True,
        "retry_on_timeout": False,
        # A worker detects a frozen Redis after about twice this time, and reconnects.
        "health_check_interval": 5,
        "visibility_timeout": _VISIBILITY_TIMEOUT_S,
        "max_retries": 1,
        "interval_start": 0,
        "interval_step": 0.2,
        "interval_max": 0.2,
    },
    broker_connection_timeout=_SOCKET_TIMEOUT_S,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_pool_limit=_CONNECTIONS,
    task_publish_retry=False,
    task_default_queue="control",
    task_ignore_result=True,
    task_store_errors_even_if_ignored=False,
    result_backend=None,
    task_acks_late=True,
    task_acks_on_failure=True,
    task_acks_on_timeout=True,
    task_reject_on_worker_lost=False,
    task_serializer="json",
    accept_content=["json"],
    worker_prefetch_multiplier=1,
    worker_enable_remote_control=False,
    worker_send_task_events=False,
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
    enable_utc=True,
    timezone="UTC",
)
app.autodiscover_tasks()
