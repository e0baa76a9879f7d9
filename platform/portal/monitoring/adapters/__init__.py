"""What monitoring reaches outside: Parquet through DuckDB, webhooks."""
