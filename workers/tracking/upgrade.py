"""`python -m workers.tracking.upgrade`: migrate MLflow's database schema, then exit.

The database is named in the environment (MLFLOW_BACKEND_STORE_URI), because a process list would
show its password.
"""

import os

import sqlalchemy
from mlflow.store.db.utils import _initialize_tables, _upgrade_db


def main() -> None:
    """Create the tables, or upgrade those that are there."""
    engine = sqlalchemy.create_engine(os.environ["MLFLOW_BACKEND_STORE_URI"])
    try:
        if sqlalchemy.inspect(engine).has_table("experiments"):
            _upgrade_db(engine)  # type: ignore[no-untyped-call]
        else:
            _initialize_tables(engine)  # type: ignore[no-untyped-call]
    finally:
        engine.dispose()


if __name__ == "__main__":
    main()
