"""Models of the app, one file per noun."""

from portal.workloads.models.allocations import Allocation, AllocationUsage
from portal.workloads.models.dashboards import DashboardSession
from portal.workloads.models.leases import Lease, UsageSample
from portal.workloads.models.package_archives import PackageArchive
from portal.workloads.models.preemptions import Preemption
from portal.workloads.models.shares import SchedulerTurn, Share
from portal.workloads.models.shells import ShellSession
from portal.workloads.models.workloads import Task, Workload, WorkloadEvent, placement_name

__all__ = [
    "Allocation",
    "AllocationUsage",
    "DashboardSession",
    "Lease",
    "PackageArchive",
    "Preemption",
    "SchedulerTurn",
    "Share",
    "ShellSession",
    "Task",
    "UsageSample",
    "Workload",
    "WorkloadEvent",
    "placement_name",
]
