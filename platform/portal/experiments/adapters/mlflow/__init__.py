"""Reads and writes the tables of MLflow directly, without importing MLflow."""
