"""Indexes of ours on MLflow's tables, without which lists of 100,000 runs are slow.

MLflow's migrations leave indexes alone that they do not know. Values of parameters and tags are
longer than an index of PostgreSQL may hold, so it indexes their first characters.
"""

from portal.experiments.adapters.mlflow.sql import PREFIX

INDEXES = (
    """CREATE INDEX IF NOT EXISTS slipway_runs_newest
    ON runs (experiment_id, lifecycle_stage, start_time DESC, run_uuid)""",
    """CREATE INDEX IF NOT EXISTS slipway_latest_metrics_value
    ON latest_metrics (key, value, run_uuid, is_nan)""",
    f"""CREATE INDEX IF NOT EXISTS slipway_params_value
    ON params (key, substr(value, 1, {PREFIX}), run_uuid)""",
    f"""CREATE INDEX IF NOT EXISTS slipway_tags_value
    ON tags (key, substr(value, 1, {PREFIX}), run_uuid)""",
)
