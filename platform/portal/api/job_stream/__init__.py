"""Live stream of a job's state, logs and resource usage, as server-sent events.

`stream` serves one client, `hub` polls for changes on behalf of all of them, `log_reader` reads
database and logs, `cursor` is the position of a client, and `authorization` checks its access.
"""
