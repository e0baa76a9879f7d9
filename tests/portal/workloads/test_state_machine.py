"""Anything may happen in any order, and crash anywhere: nothing is lost, doubled or overbooked."""

import os
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import transaction
from django.db.models import Sum
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from portal.accounts.services.projects import create_project
from portal.accounts.services.teams import create_team
from portal.compute.models import Node
from portal.compute.services.nodes import cordon_node, drain_node, uncordon_node
from portal.compute.services.quotas import set_quota
from portal.core.clock import frozen
from portal.core.errors import SlipwayError
from portal.workloads.lifecycle import ACTIVE, ENDS
from portal.workloads.models import Lease, Share, Workload
from portal.workloads.preemption import preempt_for_waiting
from portal.workloads.reconciler import reconcile
from portal.workloads.scheduling import run_pass
from portal.workloads.services.cancellation import requeue_workload, stop_workload
from slipway.schemas.agent import Rendezvous
from slipway.schemas.workloads import ReasonCode, WorkloadState
from tests.personas import Personas
from tests.portal.workloads.crashes import Crashed, crashing
from tests.portal.workloads.machines import facts, make_tier, submit
from tests.portal.workloads.moves import assert_moves_are_counted_once
from tests.portal.workloads.world import START, Agent, Key, World
from tests.turns import asked_all

EXAMPLES = int(os.environ.get("MACHINE_EXAMPLES", "10" if asked_all() else "3"))
STEPS = int(os.environ.get("MACHINE_STEPS", "30"))
# Shrinking a failure takes minutes; the first finding is often enough to go on with.
PHASES = [phase for phase in Phase if phase != Phase.shrink or "MACHINE_SHRINK" in os.environ]
crashes = st.one_of(st.none(), st.integers(0, 90))
picks = st.integers(0, 1_000_000)
ENDINGS = [
    (ReasonCode.COMPLETED, 0),
    (ReasonCode.EXIT, 1),
    (ReasonCode.SIGNAL, None),
    (ReasonCode.OUT_OF_MEMORY, 137),
    (ReasonCode.START_FAILED, None),
    (ReasonCode.PEER_FAILED, None),
]


class SchedulerMachine(RuleBasedStateMachine):
    """Users, agents, a network and a clock, against the real services and a real database."""

    template: Callable[[], World]

    @initialize()
    def begin(self) -> None:
        self.savepoint = transaction.savepoint()
        self.world = type(self).template()
        self.ended: dict[str, str] = {}
        with frozen(self.world.now):
            for name, cpus, gpus in (("a", 3, 0), ("b", 2, 0), ("g", 4, 2)):
                details = facts(cpus=cpus, gib=8, gpus=gpus)
                node = Node.objects.create(
                    name=name,
                    token_hash=name,
                    address="127.0.0.1",
                    backends=["process"],
                    gpu_models=["H100"] * gpus,
                    cpu_millis=details.capacity.cpu_millis,
                    memory_bytes=details.capacity.memory_bytes,
                    gpus=gpus,
                    last_seen_at=START,
                )
                skew = timedelta(seconds={"a": 0, "b": 45, "g": -30}[name])
                self.world.agents.append(Agent(node, details, skew, heard=START))
        for kind, nodes, tier in (("job", 2, 0), ("job", 1, 2), ("notebook", 1, 1)):
            self.submit(nodes, kind, nodes, 0, None, None, tier=tier)
        self.a_good_moment(2)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            self.heal()
            self.everything_ends_when_the_machines_are_well()
        finally:
            transaction.savepoint_rollback(self.savepoint)

    def call(self, crash: int | None, action: Callable[[], Any]) -> Any:
        """Call the portal; None when it died on the way or refused."""
        try:
            with frozen(self.world.now), crashing(crash):
                return action()
        except (Crashed, SlipwayError):
            return None

    def some(self, items: list[Any], pick: int) -> Any:
        return items[pick % len(items)] if items else None

    # What users do

    @rule(
        pick=picks,
        kind=st.sampled_from(["job", "job", "notebook"]),
        nodes=st.sampled_from([1, 1, 1, 2, 3]),
        priority=st.sampled_from([0, 0, 5]),
        lifetime=st.sampled_from([None, None, 40, 300]),
        crash=crashes,
    )
    def submit_something(
        self,
        pick: int,
        kind: str,
        nodes: int,
        priority: int,
        lifetime: int | None,
        crash: int | None,
    ) -> None:
        self.submit(pick, kind, nodes, priority, lifetime, crash, tier=pick // 7)

    def submit(
        self,
        pick: int,
        kind: str,
        nodes: int,
        priority: int,
        lifetime: int | None,
        crash: int | None,
        *,
        tier: int,
    ) -> None:
        world = self.world
        project, tier_wanted = self.some(world.projects, pick), self.some(world.tiers, tier)

        def ask() -> Workload:
            return submit(
                project,
                world.by,
                tier_wanted,
                kind=kind,
                nodes=nodes,
                priority=priority,
                max_lifetime_s=lifetime,
                is_preemptible=kind == "job" and pick % 2 == 0,
                key=f"key-{pick % 50}-{kind}-{nodes}-{priority}-{lifetime}",
            )

        if self.call(crash, ask) is None:
            self.call(None, ask)  # the user asks again with the same key

    @rule(pick=picks, crash=crashes, again=st.booleans())
    def stop(self, pick: int, crash: int | None, again: bool) -> None:
        workload = self.some(list(Workload.objects.unfinished().order_by("pk")), pick)
        if workload is not None:
            verb = requeue_workload if again else stop_workload
            self.call(crash, lambda: verb(workload=workload, by=self.world.by))

    # What the platform does by itself

    @rule(crash=crashes)
    def schedule(self, crash: int | None) -> None:
        self.call(crash, run_pass)

    @rule(crash=crashes)
    def preempt(self, crash: int | None) -> None:
        self.call(crash, preempt_for_waiting)

    @rule(crash=crashes)
    def look_after(self, crash: int | None) -> None:
        self.call(crash, reconcile)

    @rule(seconds=st.integers(1, 35))
    def wait(self, seconds: int) -> None:
        self.world.pass_time(seconds)

    @rule(rounds=st.integers(1, 3))
    def a_good_moment(self, rounds: int) -> None:
        """Everybody who is well speaks and is heard, as most of the time."""
        for _ in range(rounds):
            self.call(None, run_pass)
            self.call(None, preempt_for_waiting)
            self.round_trip()
            self.start_up()
            self.world.pass_time(1)

    @rule(pick=picks, seconds=st.sampled_from([20, 45, 58, 64, 90]), crash=crashes)
    def a_machine_is_out_of_reach(self, pick: int, seconds: int, crash: int | None) -> None:
        """One agent cannot reach the portal for a while; everything else goes on."""
        agent = self.well(pick)
        if agent is None:
            return
        agent.is_connected = False
        for _ in range(0, seconds, 5):
            self.world.pass_time(5)
            self.round_trip()
            self.call(crash, reconcile)
            self.call(None, run_pass)
            self.all_is_well()
        agent.is_connected = True

    @rule(pick=picks, verb=st.sampled_from([cordon_node, drain_node, uncordon_node]))
    def administrate(self, pick: int, verb: Callable[..., Node]) -> None:
        node = self.some(list(Node.objects.order_by("pk")), pick)
        self.call(None, lambda: verb(node=node))

    # What agents do

    @rule(pick=picks, crash=crashes)
    def poll(self, pick: int, crash: int | None) -> None:
        agent = self.well(pick)
        if agent is not None:
            desired = self.call(crash, lambda: self.world.desired_of(agent))
            if desired is not None:
                agent.follow(desired, self.world.now)

    @rule(pick=picks)
    def beat(self, pick: int) -> None:
        agent = self.alive(pick)
        if agent is not None:
            self.world.network.append(agent.beat(self.world.now))

    @rule(pick=picks)
    def send(self, pick: int) -> None:
        agent = self.alive(pick)
        message = agent.waiting_reports(self.world.now) if agent else None
        if message is not None:
            self.world.network.append(message)

    @precondition(lambda self: self.world.network)
    @rule(pick=picks, crash=crashes, copy=st.booleans(), unanswered=st.booleans())
    def deliver(self, pick: int, crash: int | None, copy: bool, unanswered: bool) -> None:
        """Any message arrives, in any order, perhaps again later, perhaps without an answer."""
        message = self.some(self.world.network, pick)
        if not copy:
            self.world.network.remove(message)
        answer = self.call(crash, lambda: self.world.handle(message))
        if answer is not None and not unanswered and message.agent.is_alive:
            self.world.answer(message, answer)

    @precondition(lambda self: self.world.network)
    @rule(pick=picks)
    def lose(self, pick: int) -> None:
        self.world.network.remove(self.some(self.world.network, pick))

    @rule(pick=picks, ending=st.sampled_from(ENDINGS), goes_on=st.booleans())
    def progress(self, pick: int, ending: tuple[ReasonCode, int | None], goes_on: bool) -> None:
        """A process gets further, or ends."""
        candidates = [
            (agent, key)
            for agent in self.world.agents
            if agent.is_alive
            for key in sorted(agent.running)
        ]
        if not candidates:
            return
        agent, key = self.some(candidates, pick)
        if goes_on:
            self.get_on(agent, key)
        else:
            agent.end(key, ending[0], self.world.now, exit_code=ending[1])

    def get_on(self, agent: Agent, key: Key) -> None:
        process = agent.running[key]
        now = self.world.now
        if process.phase == "starting":
            if process.index == 0:
                place = Rendezvous(address="127.0.0.1", port=4000)
                agent.report(key, "rendezvous", now, rendezvous=place)
            agent.report(key, "running", now)
            process.phase = "running"
        else:
            agent.report(key, "progress", now, step=agent.sequences[key])

    @rule(pick=picks, disk_survives=st.booleans())
    def kill_machine(self, pick: int, disk_survives: bool) -> None:
        """The power fails: whatever ran is gone, and so is what was not sent."""
        agent = self.alive(pick)
        if agent is not None:
            agent.is_alive = False
            agent.done |= set(agent.running)
            if not disk_survives:
                agent.done.clear()
                agent.sequences.clear()
            agent.running.clear()
            agent.outbox.clear()

    @rule(pick=picks)
    def boot_machine(self, pick: int) -> None:
        """A dead machine starts again, perhaps before anybody noticed."""
        agent = self.some([agent for agent in self.world.agents if not agent.is_alive], pick)
        if agent is not None:
            agent.is_alive = True
            agent.heard = self.world.now

    @rule(pick=picks)
    def cut_or_mend_the_network(self, pick: int) -> None:
        agent = self.alive(pick)
        if agent is not None:
            agent.is_connected = not agent.is_connected

    def alive(self, pick: int) -> Agent | None:
        agent: Agent | None = self.some([a for a in self.world.agents if a.is_alive], pick)
        return agent

    def well(self, pick: int) -> Agent | None:
        well = [a for a in self.world.agents if a.is_alive and a.is_connected]
        agent: Agent | None = self.some(well, pick)
        return agent

    def start_up(self) -> None:
        """Let what is starting run."""
        for agent in self.world.agents:
            for key in sorted(agent.running):
                if agent.is_alive and agent.running[key].phase == "starting":
                    self.get_on(agent, key)

    def finish_up(self) -> None:
        """Let what runs end well."""
        for agent in self.world.agents:
            for key in sorted(agent.running):
                if agent.is_alive and agent.running[key].phase == "running":
                    agent.end(key, ReasonCode.COMPLETED, self.world.now, exit_code=0)

    def round_trip(self) -> None:
        """Let every agent speak that can."""
        for agent in self.world.agents:
            if not (agent.is_alive and agent.is_connected):
                continue
            for message in (agent.waiting_reports(self.world.now), agent.beat(self.world.now)):
                if message is not None:
                    self.world.answer(message, self.world.handle(message))
            agent.follow(self.world.desired_of(agent), self.world.now)

    # What must hold

    @invariant()
    def all_is_well(self) -> None:
        if hasattr(self, "world"):
            self.no_task_runs_twice()
            self.no_machine_holds_more_than_it_has()
            self.no_card_is_given_twice()
            self.leases_of_a_task_follow_each_other()
            self.states_agree_with_leases()
            self.shares_agree_with_what_runs()
            assert_moves_are_counted_once()

    def no_task_runs_twice(self) -> None:
        running = Counter(key[0] for agent in self.world.agents for key in agent.running)
        assert not [task for task, count in running.items() if count > 1]

    def no_machine_holds_more_than_it_has(self) -> None:
        for agent in self.world.agents:
            used = sum(process.cpu_millis for process in agent.running.values())
            assert used <= agent.facts.capacity.cpu_millis
        sums = {
            row["node_id"]: (row["cpus"], row["memory"], row["cards"])
            for row in Lease.objects.open()
            .values("node_id")
            .annotate(cpus=Sum("cpu_millis"), memory=Sum("memory_bytes"), cards=Sum("gpus"))
        }
        for node in Node.objects.all():
            taken = (node.used_cpu_millis, node.used_memory_bytes, node.used_gpus)
            assert taken == sums.get(node.pk, (0, 0, 0))
            assert node.capacity.covers(node.capacity.minus(node.free))
            assert node.used_cpu_millis <= node.cpu_millis
            assert node.used_gpus <= node.gpus

    def no_card_is_given_twice(self) -> None:
        given = Counter(
            (node, index)
            for node, indices in Lease.objects.open().values_list("node", "gpu_indices")
            for index in indices
        )
        assert all(count == 1 for count in given.values())

    def leases_of_a_task_follow_each_other(self) -> None:
        last: dict[str, Any] = {}
        leases = Lease.objects.order_by("task_id", "epoch")
        for task, granted, ended in leases.values_list("task_id", "granted_at", "ended_at"):
            if task in last:
                assert last[task] is not None, "an older lease is still open"
                assert last[task] <= granted, "two leases of one task overlap"
            last[task] = ended

    def states_agree_with_leases(self) -> None:
        open_leases: dict[str, list[int]] = {}
        for workload_id, epoch in Lease.objects.open().values_list("workload_id", "epoch"):
            open_leases.setdefault(workload_id, []).append(epoch)
        for workload in Workload.objects.all():
            epochs = open_leases.get(workload.pk, [])
            assert set(epochs) <= {workload.epoch}
            assert bool(epochs) == (workload.status in ACTIVE), workload.state
            if workload.pk in self.ended:
                assert workload.state == self.ended[workload.pk], "an end is an end"
            if workload.status in ENDS:
                self.ended[workload.pk] = workload.state

    def shares_agree_with_what_runs(self) -> None:
        for share in Share.objects.all():
            key = {"team_id": share.team_id} if share.team_id else {"project_id": share.project_id}
            workloads = Workload.objects.filter(**key)
            assert share.queued == workloads.filter(state=WorkloadState.QUEUED).count()
            assert share.running == workloads.active().count()
            sums = (
                Lease.objects.open()
                .filter(**key)
                .aggregate(cpus=Sum("cpu_millis"), cards=Sum("gpus"), fair=Sum("fair_millis"))
            )
            counts = (share.cpu_millis, share.gpus, share.fair_millis)
            assert counts == (sums["cpus"] or 0, sums["cards"] or 0, sums["fair"] or 0)

    def heal(self) -> None:
        """All machines come back, the network works, the nodes are open."""
        self.world.network.clear()
        for agent in self.world.agents:
            if not agent.is_alive:
                agent.is_alive = True
                agent.heard = self.world.now
            agent.is_connected = True
        for node in Node.objects.all():
            self.call(None, partial(uncordon_node, node=node))

    def everything_ends_when_the_machines_are_well(self) -> None:
        for _ in range(120):
            self.world.pass_time(5)
            self.finish_up()
            self.start_up()
            self.round_trip()
            self.call(None, reconcile)
            self.call(None, run_pass)
            self.call(None, preempt_for_waiting)
            self.states_agree_with_leases()
            if not Workload.objects.unfinished().exists():
                break
        left = list(
            Workload.objects.unfinished().values_list("state", "plan", "nodes", "tier__slug")
        )
        assert not left, f"lost: {left}"
        self.round_trip()
        assert not Lease.objects.open().exists()
        assert not any(agent.running for agent in self.world.agents)
        self.no_machine_holds_more_than_it_has()
        self.shares_agree_with_what_runs()


@pytest.mark.django_db
def test_nothing_is_lost_doubled_or_overbooked(people: Personas) -> None:
    team = create_team(by=people.bob, name="Team")
    projects = [
        people.vision,
        create_project(by=people.bob, name="In team", team=team),
        create_project(by=people.bob, name="Also in team", team=team),
    ]
    set_quota(group=people.vision, cpu_millis=5000, running=4)
    set_quota(group=team, gpus=2, weight=2.0)
    tiers = [
        make_tier("one", cpus=1, gib=1),
        make_tier("two", cpus=2, gib=2),
        make_tier("card", cpus=1, gib=1, gpus=1),
    ]

    class Machine(SchedulerMachine):
        @staticmethod
        def template() -> World:
            return World(projects, people.bob, tiers)

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize="MACHINE_EXAMPLES" not in os.environ,
            suppress_health_check=list(HealthCheck),
            phases=PHASES,
        ),
    )
