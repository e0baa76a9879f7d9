"""A small world to drive the scheduler in: simulated agents, a bad network, a clock that obeys.

The agents follow the contract of `slipway.schemas.agent` as a real one must: they keep reports
until they are acknowledged, run what is desired and kill what is not, and stop everything when they
could not reach the portal for as long as they were told.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from portal.accounts.models import Project, User
from portal.compute.models import Node, Tier
from portal.core.clock import frozen
from portal.workloads.services.desired import desired_for
from portal.workloads.services.heartbeats import heartbeat
from portal.workloads.services.reports import accept_reports
from slipway.schemas.agent import (
    DesiredState,
    Heartbeat,
    HeartbeatAnswer,
    NodeFacts,
    ReportsAnswer,
    TaskKey,
    TaskReport,
)
from slipway.schemas.workloads import ReasonCode

Key = tuple[str, int]
START = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@dataclass
class Process:
    """A task that runs on a machine right now: what must never exist twice."""

    workload_id: str
    index: int
    phase: str = "starting"
    stop_reason: ReasonCode | None = None
    cpu_millis: int = 0


@dataclass
class Message:
    """Something under way from an agent to the portal."""

    agent: "Agent"
    body: Heartbeat | list[TaskReport]
    sent: datetime
    sent_unix_ms: int


@dataclass
class Agent:
    """One machine and its agent. `skew` is what its clock shows wrongly."""

    node: Node
    facts: NodeFacts
    skew: timedelta
    heard: datetime
    fence_s: float = 50.0
    is_alive: bool = True
    is_connected: bool = True
    running: dict[Key, Process] = field(default_factory=dict)
    done: set[Key] = field(default_factory=set)
    outbox: dict[Key, list[TaskReport]] = field(default_factory=dict)
    sequences: dict[Key, int] = field(default_factory=dict)

    def clock_ms(self, now: datetime) -> int:
        """Return what the machine's own clock shows."""
        return int((now + self.skew).timestamp() * 1000)

    def report(self, key: Key, kind: str, now: datetime, **fields: Any) -> None:
        """Put a report into the outbox."""
        self.sequences[key] = self.sequences.get(key, 0) + 1
        report = TaskReport(
            task_id=key[0],
            epoch=key[1],
            sequence=self.sequences[key],
            kind=kind,
            at_unix_ms=self.clock_ms(now),
            **fields,
        )
        self.outbox.setdefault(key, []).append(report)

    def follow(self, desired: DesiredState, now: datetime) -> None:
        """Run what is desired, stop what is not."""
        desired_tasks = {(task.task_id, task.epoch): task for task in desired.tasks}
        for key, task in desired_tasks.items():
            if key in self.done:
                continue
            if task.action == "start" and key not in self.running:
                assert task.spec is not None
                self.running[key] = Process(
                    task.workload_id, task.index, cpu_millis=task.spec.resources.cpu_millis
                )
                self.report(key, "starting", now, message="preparing")
            elif task.action == "stop":
                self.end(key, task.stop_reason or ReasonCode.USER, now)
        for key in set(self.running) - set(desired_tasks):
            self.drop(key)

    def end(self, key: Key, reason: ReasonCode, now: datetime, **fields: Any) -> None:
        """End a task (or say that it never ran) and report so."""
        self.running.pop(key, None)
        self.done.add(key)
        self.report(key, "ended", now, reason=reason, **fields)

    def drop(self, key: Key) -> None:
        """Kill a task whose epoch has moved on, and say no more about it."""
        self.running.pop(key, None)
        self.done.add(key)
        self.outbox.pop(key, None)

    def fence(self, now: datetime) -> None:
        """Stop everything if the portal was out of reach for too long."""
        if now >= self.heard + timedelta(seconds=self.fence_s):
            for key in list(self.running):
                self.end(key, ReasonCode.FENCED, now)

    def beat(self, now: datetime) -> Message:
        """Make a heartbeat."""
        body = Heartbeat(
            boot_id="boot",
            facts=self.facts,
            cpu_percent=0,
            memory_used_bytes=0,
            running=[TaskKey(task_id=task, epoch=epoch) for task, epoch in self.running],
        )
        return Message(self, body, now, self.clock_ms(now))

    def waiting_reports(self, now: datetime) -> Message | None:
        """Make a message of everything not acknowledged yet."""
        reports = [report for group in self.outbox.values() for report in group]
        return Message(self, reports, now, self.clock_ms(now)) if reports else None


class World:
    """Projects, agents, messages under way, and the time."""

    def __init__(self, projects: list[Project], by: User, tiers: list[Tier]) -> None:
        self.projects, self.by, self.tiers = projects, by, tiers
        self.now = START
        self.agents: list[Agent] = []
        self.network: list[Message] = []

    def desired_of(self, agent: Agent) -> DesiredState:
        """Ask what an agent should run."""
        with frozen(self.now):
            return desired_for(node=Node.objects.get(pk=agent.node.pk))

    def handle(self, message: Message) -> HeartbeatAnswer | ReportsAnswer:
        """Let the portal handle a message."""
        node = Node.objects.get(pk=message.agent.node.pk)
        with frozen(self.now):
            if isinstance(message.body, Heartbeat):
                return heartbeat(node=node, beat=message.body)
            return accept_reports(
                node=node, reports=message.body, sent_unix_ms=message.sent_unix_ms
            )

    def answer(self, message: Message, answer: HeartbeatAnswer | ReportsAnswer) -> None:
        """Let the agent hear the answer to its message."""
        agent = message.agent
        if isinstance(answer, HeartbeatAnswer):
            # It counts from when it asked, not from when it was answered.
            agent.heard = max(agent.heard, message.sent)
            agent.fence_s = answer.lease_s
            for fenced in answer.fenced:
                agent.drop((fenced.task_id, fenced.epoch))
            return
        assert isinstance(message.body, list)
        stale = {(key.task_id, key.epoch) for key in answer.stale}
        for key in stale:
            agent.drop(key)
        sent = {(report.task_id, report.epoch, report.sequence) for report in message.body}
        for key, reports in list(agent.outbox.items()):
            left = [report for report in reports if (*key, report.sequence) not in sent]
            agent.outbox[key] = left
            if not left:
                del agent.outbox[key]

    def pass_time(self, seconds: float) -> None:
        """Let time pass, second by second as far as agents are concerned."""
        for _ in range(int(seconds)):
            self.now += timedelta(seconds=1)
            for agent in self.agents:
                if agent.is_alive:
                    agent.fence(self.now)
