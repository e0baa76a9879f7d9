"""Registers batch predictions in lineage graphs."""

from portal.batch_predictions.lineage import predictions_of, version_behind
from portal.registry.ports import register_downstream, register_upstream
from slipway.schemas.registry import NodeKind

register_downstream(predictions_of)
register_upstream(NodeKind.BATCH_PREDICTION, version_behind)
