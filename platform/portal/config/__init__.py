"""The process layer: settings, URLs, policies of library views, processes.

The Celery app is imported by `portal.config.wiring`: every process that loads Django has it
(without it `shared_task` would silently connect to a default AMQP broker), while the supervisor,
which does not load Django, stays small.
"""
