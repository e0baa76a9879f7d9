"""What is heavy about predictions: a process of its own, without Django, secrets or environment.

`python -m portal.monitoring.analysis` reads orders, a line of JSON each, and answers each with a
line. It alone imports numpy, scipy and pyarrow, runs at low priority with bounded memory, and may
die of what it reads.
"""
