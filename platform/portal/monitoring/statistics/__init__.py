"""Statistics of drift and quality on numpy and scipy alone: no Django, no I/O.

Imported by the analysis process (`portal.monitoring.analysis`), never by the portal itself.
"""
