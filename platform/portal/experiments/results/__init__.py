"""Artifacts that have a meaning: images by step, tables, charts, event files, checkpoints.

Their bytes come from whoever logs a run, and are hostile: all sizes are limited before memory is
allocated, and what takes long to parse is parsed by `inspection`, a confined process.
"""
