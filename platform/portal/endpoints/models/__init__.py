"""Models of this app, one file for each noun."""

from portal.endpoints.models.days import AnsweredDay
from portal.endpoints.models.endpoints import Endpoint, EndpointEvent, Revision
from portal.endpoints.models.gateways import (
    Gateway,
    GatewayProcess,
    ServingVersion,
    TrafficCounts,
    TrafficHour,
    TrafficMinute,
)
from portal.endpoints.models.incidents import ServingIncident
from portal.endpoints.models.keys import EndpointKey
from portal.endpoints.models.replicas import Replica
from portal.endpoints.models.rollouts import Rollout

__all__ = [
    "AnsweredDay",
    "Endpoint",
    "EndpointEvent",
    "EndpointKey",
    "Gateway",
    "GatewayProcess",
    "Replica",
    "Revision",
    "Rollout",
    "ServingIncident",
    "ServingVersion",
    "TrafficCounts",
    "TrafficHour",
    "TrafficMinute",
]
