"""Heavy analysis of predictions: a separate process, without Django, secrets or environment.

`python -m portal.monitoring.analysis` reads requests, one JSON object per line, and answers each
with a line. Only this process imports numpy, scipy and pyarrow. It runs at low priority with
bounded memory, and malformed input may crash only it.
"""
