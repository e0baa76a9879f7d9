"""Database models of the app, one module per noun."""

from portal.compute.models.environments import (
    BuildRequest,
    Environment,
    EnvironmentBuild,
    ProjectEnvironment,
)
from portal.compute.models.group_machines import GroupMachine
from portal.compute.models.machine_days import MachineDay
from portal.compute.models.named_environments import EnvironmentVersion, NamedEnvironment
from portal.compute.models.node_groups import NodeGroup, NodeGroupProject
from portal.compute.models.nodes import JoinToken, Node
from portal.compute.models.package_checks import PackageCheck
from portal.compute.models.pool_helpers import HelperRequest, PoolHelper
from portal.compute.models.pools import Pool, PoolAccount, PoolProject
from portal.compute.models.quotas import Quota
from portal.compute.models.tiers import Tier, TierPrice

__all__ = [
    "BuildRequest",
    "Environment",
    "EnvironmentBuild",
    "EnvironmentVersion",
    "GroupMachine",
    "HelperRequest",
    "JoinToken",
    "MachineDay",
    "NamedEnvironment",
    "Node",
    "NodeGroup",
    "NodeGroupProject",
    "PackageCheck",
    "Pool",
    "PoolAccount",
    "PoolHelper",
    "PoolProject",
    "ProjectEnvironment",
    "Quota",
    "Tier",
    "TierPrice",
]
