"""Reads what the API says of pods: whether an allocation waits, runs or has ended, and why.

Reasons: https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions.
Servers before 1.26 have no such conditions: there events and the state of the node tell.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from portal.compute.adapters.engines.kubernetes.manifests import CREATED, END, PROBLEM, TASKS
from portal.compute.engines import AllocationPhase, AllocationReport, EndCause

Document = Mapping[str, Any]

# Reasons in the status of a pod that its node, or the controller of nodes, has ended.
_STATUS_REASONS: Final[Mapping[str, EndCause]] = {
    "DeadlineExceeded": EndCause.TIME_LIMIT,
    "Evicted": EndCause.PREEMPTED,
    "Preempting": EndCause.PREEMPTED,
    "NodeLost": EndCause.NODE_FAILED,
    "Shutdown": EndCause.NODE_FAILED,
    "NodeShutdown": EndCause.NODE_FAILED,
    "Terminated": EndCause.NODE_FAILED,
    "NodeAffinity": EndCause.NODE_FAILED,
    "OutOfcpu": EndCause.NODE_FAILED,
    "OutOfmemory": EndCause.NODE_FAILED,
    "OutOfpods": EndCause.NODE_FAILED,
    "UnexpectedAdmissionError": EndCause.NODE_FAILED,
}
# The scheduler deletes a pod first, and records the event afterwards.
_EVENTS_WITHIN_S: Final = 3.0
_DISRUPTIONS: Final[Mapping[str, EndCause]] = {
    "PreemptionByScheduler": EndCause.PREEMPTED,
    "EvictionByEvictionAPI": EndCause.PREEMPTED,
    "TerminationByKubelet": EndCause.PREEMPTED,
    "DeletionByTaintManager": EndCause.NODE_FAILED,
    "DeletionByPodGC": EndCause.NODE_FAILED,
}
# Events about pods that are deleted for a reason.
_EVENTS: Final[Mapping[str, EndCause]] = {
    "Preempted": EndCause.PREEMPTED,
    "TaintManagerEviction": EndCause.NODE_FAILED,
}
# A pod is gone in truth when it should have ended so long ago: its node does not answer.
_LATE_S: Final = 60.0
_FAILED_PULL: Final = "Failed to pull image"


@dataclass(frozen=True)
class End:
    """End of an allocation. `at` is the time, in seconds since 1970, when it was seen."""

    cause: EndCause
    detail: str
    at: float

    def as_text(self) -> str:
        """Return it as an annotation."""
        return json.dumps({"cause": self.cause.value, "detail": self.detail, "at": self.at})


@dataclass(frozen=True)
class Surroundings:
    """Explanations of pods: warnings by pod, the latest last, and nodes that may be read.

    They were read at `now`, in seconds since 1970.
    """

    warnings: Mapping[str, Sequence[Document]]
    nodes: Mapping[str, Document]
    now: float = math.inf


def noted_end(anchor: Document) -> End | None:
    """Return the end that the ConfigMap of an allocation notes."""
    text = _annotations(anchor).get(END)
    if not text:
        return None
    document = json.loads(text)
    return End(EndCause(document["cause"]), document["detail"], document["at"])


def is_created(anchor: Document) -> bool:
    """Return True if all pods of an allocation have been made once."""
    return CREATED in _annotations(anchor)


def is_deleted(pod: Document) -> bool:
    """Return True if somebody has asked for the end of a pod."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def is_live(pod: Document, *, now: float, since: float | None) -> bool:
    """Return True while a pod may still run. `since` is when its end was noticed, if it was."""
    deadline = _timestamp(pod["metadata"].get("deletionTimestamp"))
    if deadline is not None and now > deadline + _LATE_S:
        return False
    if _phase(pod) not in ("Succeeded", "Failed"):
        return True
    # The phase of a pod that is evicted or too late is Failed while its agent still saves.
    is_running = any("running" in status["state"] for status in _containers(pod))
    grace = pod["spec"].get("terminationGracePeriodSeconds", 0)
    return is_running and (since is None or now < since + grace + _LATE_S)


def new_end(
    anchor: Document, pods: Sequence[Document], around: Surroundings
) -> tuple[EndCause, str, Document | None] | None:
    """Return the cause, the reason and the pod of an end that was not noted yet, if there is one.

    One pod that ends otherwise than well ends the allocation.
    """
    failed = None
    for pod in pods:
        if _is_just_deleted(pod, around):
            return None
        disrupted = _disruption(pod, around)
        if disrupted is not None:
            return (*disrupted, pod)
        if _phase(pod) == "Failed":
            failed = failed or pod
    if failed is not None:
        return EndCause.FAILED, _exit_text(failed), failed
    missing = int(_annotations(anchor)[TASKS]) - len(pods)
    if is_created(anchor) and missing:
        left = {pod["metadata"]["name"] for pod in pods}
        name = anchor["metadata"]["name"]
        gone = [
            warning
            for pod, warnings in around.warnings.items()
            if pod.rpartition("-")[0] == name and pod not in left
            for warning in warnings
        ]
        if preempted := [event for event in gone if event.get("reason") == "Preempted"]:
            return EndCause.PREEMPTED, preempted[-1].get("message") or "", None
        return EndCause.CANCELLED, "its pod was deleted", None
    return None


def stuck_gang(pods: Sequence[Document], *, now: float, patience_s: float) -> str:
    """Return the reason if a part of a gang runs and the rest has found no place for too long.

    Kubernetes places pods one by one, so two gangs may each hold what the other needs.
    """
    waiting = [condition for pod in pods if (condition := _unscheduled(pod))]
    if not waiting or len(waiting) == len(pods):
        return ""
    since = max(_timestamp(entry.get("lastTransitionTime")) or now for entry in waiting)
    if now < since + patience_s:
        return ""
    placed = len(pods) - len(waiting)
    return (
        f"only {placed} of {len(pods)} pods found a place within {patience_s:g} s, and gave it "
        f"back: {waiting[0].get('message') or waiting[0].get('reason')}"
    )


def report(
    anchor: Document, pods: Sequence[Document], around: Surroundings, *, now: float
) -> AllocationReport:
    """Report on an allocation whose end, if there is one, is noted."""
    end = noted_end(anchor)
    live = [pod for pod in pods if is_live(pod, now=now, since=end.at if end else None)]
    if end is not None:
        if live:
            return AllocationReport(AllocationPhase.GRANTED)
        return AllocationReport(AllocationPhase.ENDED, end.detail, end.cause)
    if not is_created(anchor):
        return AllocationReport(AllocationPhase.WAITING, _annotations(anchor).get(PROBLEM, ""))
    if not live:
        return AllocationReport(AllocationPhase.ENDED, cause=EndCause.FINISHED)
    waiting = [pod for pod in live if _phase(pod) == "Pending"]
    if not waiting:
        return AllocationReport(AllocationPhase.GRANTED)
    reason = next(filter(None, (waiting_reason(pod, around) for pod in waiting)), "")
    if len(waiting) < len(pods):
        reason = f"{len(pods) - len(waiting)} of {len(pods)} pods run. {reason}".strip()
    return AllocationReport(AllocationPhase.WAITING, reason)


def waiting_reason(pod: Document, around: Surroundings) -> str:
    """Return in the words of Kubernetes why a pod does not run yet. "" if it is just starting."""
    if condition := _unscheduled(pod):
        text: str = condition.get("message") or condition.get("reason") or ""
        return text
    warnings = around.warnings.get(pod["metadata"]["name"], ())
    for status in _containers(pod):
        state = status["state"].get("waiting") or {}
        if state.get("reason", "ContainerCreating") != "ContainerCreating":
            # Of a pull that will be tried again, the state has only the name of the image.
            pulls = [event["message"] for event in warnings if _is_failed_pull(event)]
            return _joined(state["reason"], pulls[-1] if pulls else state.get("message"))
    if warnings:
        return _joined(warnings[-1].get("reason"), warnings[-1].get("message"))
    node = pod["spec"].get("nodeName")
    return f"ContainerCreating on node {node}" if node else ""


def _is_failed_pull(event: Document) -> bool:
    return event.get("reason") == "Failed" and str(event.get("message")).startswith(_FAILED_PULL)


def is_explained_by_events(pod: Document) -> bool:
    """Return True if only events can say what becomes of a pod."""
    if is_deleted(pod):
        return not _disruption_condition(pod)
    return _phase(pod) == "Pending" and bool(pod["spec"].get("nodeName"))


def _disruption(pod: Document, around: Surroundings) -> tuple[EndCause, str] | None:
    for status in _containers(pod):
        terminated = status["state"].get("terminated") or {}
        if terminated.get("reason") == "OOMKilled":
            return EndCause.OUT_OF_MEMORY, "OOMKilled"
    status = pod["status"]
    if cause := _STATUS_REASONS.get(status.get("reason", "")):
        return cause, _joined(status["reason"], status.get("message"))
    condition = _disruption_condition(pod)
    if condition:
        cause = _DISRUPTIONS.get(condition.get("reason", ""), EndCause.PREEMPTED)
        return cause, _joined(condition.get("reason"), condition.get("message"))
    if not is_deleted(pod):
        return None
    return _deletion(pod, around)


def _is_just_deleted(pod: Document, around: Surroundings) -> bool:
    """Return True if a pod was deleted so lately that the event that says why may be to come."""
    due = _timestamp(pod["metadata"].get("deletionTimestamp"))
    if due is None or around.warnings.get(pod["metadata"]["name"]):
        return False
    deleted_at = due - float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
    return around.now - deleted_at < _EVENTS_WITHIN_S


def _deletion(pod: Document, around: Surroundings) -> tuple[EndCause, str]:
    """Return why a pod is being deleted, by events and its node, where its status says nothing."""
    name = pod["metadata"]["name"]
    for event in around.warnings.get(name, ()):
        if cause := _EVENTS.get(event.get("reason", "")):
            return cause, event.get("message") or ""
    node_name = pod["spec"].get("nodeName", "")
    node = around.nodes.get(node_name)
    if node is not None:
        for entry in node["status"].get("conditions") or ():
            if entry["type"] == "Ready" and entry["status"] != "True":
                return EndCause.NODE_FAILED, _joined(entry.get("reason"), entry.get("message"))
        if node["spec"].get("unschedulable"):
            return EndCause.PREEMPTED, f"node {node_name} is cordoned, and its pods are evicted"
    return EndCause.CANCELLED, f"pod {name} was deleted"


def _unscheduled(pod: Document) -> Document | None:
    for condition in pod["status"].get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] != "True":
            return dict(condition)
    return None


def _disruption_condition(pod: Document) -> Document | None:
    for condition in pod["status"].get("conditions") or ():
        if condition["type"] == "DisruptionTarget" and condition["status"] == "True":
            return dict(condition)
    return None


def _exit_text(pod: Document) -> str:
    for status in _containers(pod):
        terminated = status["state"].get("terminated")
        if terminated and terminated.get("exitCode"):
            text = _joined(terminated.get("reason"), terminated.get("message"))
            return f"exit code {terminated.get('exitCode')} ({text})"
    return _joined(pod["status"].get("reason"), pod["status"].get("message"))


def by_pod(events: Iterable[Document]) -> dict[str, list[Document]]:
    """Return events by the name of their pod, the latest last."""
    grouped: dict[str, list[Document]] = {}
    for event in sorted(events, key=_event_time):
        grouped.setdefault(event["involvedObject"].get("name", ""), []).append(event)
    return grouped


def _event_time(event: Document) -> str:
    return event.get("lastTimestamp") or event.get("eventTime") or ""


def _containers(pod: Document) -> Sequence[Document]:
    status = pod["status"]
    # A container that waits for an image comes first.
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _phase(pod: Document) -> str:
    return str(pod["status"].get("phase", "Pending"))


def _annotations(anchor: Document) -> Mapping[str, str]:
    return anchor["metadata"].get("annotations") or {}


def _joined(reason: str | None, message: str | None) -> str:
    return ": ".join(filter(None, (reason, message)))


def _timestamp(text: str | None) -> float | None:
    return datetime.fromisoformat(text).timestamp() if text else None
