"""Following a job live: its state, logs and use of resources, as server-sent events.

`stream` speaks to one follower, `hub` looks for what is new on behalf of all of them, `readings`
asks database and logs, `bookmark` is what a follower comes back with, `rights` says whether it may.
"""
