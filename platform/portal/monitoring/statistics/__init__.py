"""Statistics of drift and quality on numpy and scipy alone: no Django, no I/O.

Imported by the process that analyses (`portal.monitoring.analysis`), never by the portal itself.
"""
