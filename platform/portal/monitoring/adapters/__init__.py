"""Adapters of monitoring: Parquet through DuckDB, webhooks."""
