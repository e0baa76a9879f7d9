"""Slurm through the helper of each person: Slipway runs none of its commands.

The helper (`slipway pool helper`, `slipway.slurm_helper`) runs on a login node under the person's
own login. It gets requests, which are rows (`portal.compute.services.pool_helpers`), and reports
what the commands printed. So no call here waits: it reads what is known, and leaves a request.

A handle is `NUMBER@PERSON`, because a number alone is what a helper says: no helper can name or
report on the job of another person.
"""

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from portal.compute.adapters.engines.slurm.commands import SlurmEngine
from portal.compute.adapters.engines.slurm.reports import is_temporary
from portal.compute.adapters.engines.slurm.settings import SlurmSettings
from portal.compute.engines import (
    AllocationDelayed,
    AllocationOrder,
    AllocationPhase,
    AllocationReport,
    Answer,
    EngineAway,
    EngineRefused,
    Owner,
    Usage,
    submit_each,
)
from portal.compute.lifecycle import HelperRequestState
from portal.compute.models import HelperRequest
from portal.compute.services.pool_helpers import (
    ask_again,
    person_proving,
    put_request,
    refuse_proof,
    withdraw_request,
)
from slipway.schemas.pool_helpers import HelperOperation, HelperStatus

# The job that proves an account: it does nothing.
_PROOF_SCRIPT: Final = "#!/bin/sh\ntrue\n"
# The helper adds these itself.
_FIXED: Final = frozenset({"export", "output"})


class SlurmPersonEngine(SlurmEngine):
    """One partition of a Slurm cluster, through the helpers of people."""

    def __init__(
        self,
        pool: str,
        settings: SlurmSettings,
        *,
        url: str,
        python: str,
        task_python: str = "",
    ) -> None:
        super().__init__(settings, url=url, python=python, task_python=task_python)
        self._pool = pool
        # Output of the commands, from the answer that is being read.
        self._outputs: Mapping[str, Any] = {}

    def submit(self, order: AllocationOrder) -> str:
        """Return the handle, once the helper has submitted the job.

        Raises AllocationDelayed until then, and EngineRefused.
        """
        options = dict(_option(word) for word in self._options(order.name, [order]) if "=" in word)
        arguments = {"options": {name: options[name] for name in options.keys() - _FIXED}}
        script = self._script([order])
        row = self._put(order.person, HelperOperation.SUBMIT, order.name, arguments, script)
        if row.answer is None:
            if row.state == HelperRequestState.ANSWERED:
                ask_again(row, arguments, script)
            raise AllocationDelayed(row.problem)
        if row.answer["status"] == HelperStatus.REFUSED:
            text = row.answer["text"] or "the helper gave no reason"
            if not is_temporary(text):
                raise EngineRefused(text)
            ask_again(row, arguments, script)
            raise AllocationDelayed(text)
        return f"{row.answer['handle']}@{order.person}"

    def submit_many(self, batch: str, orders: Sequence[AllocationOrder]) -> Mapping[str, Answer]:
        """Order jobs one by one: a helper submits no arrays."""
        return submit_each(self.submit, orders)

    def look(self, handles: Sequence[str]) -> Mapping[str, AllocationReport]:
        """Report on jobs by the last answer of each person's helper, and ask it again."""
        reports = {}
        for person, numbers in _by_person(handles).items():
            row = self._put(person, HelperOperation.LOOK, "", {"handles": numbers})
            ask_again(row, {"handles": numbers})
            problem, known, covered = row.problem, {}, _covered(row)
            self._outputs = row.answer or {}
            try:
                known = dict(super().look(covered)) if covered else {}
            except EngineAway as error:
                problem, covered = problem or str(error), []
            for number in numbers:
                report = known.get(number)
                if report is None and number in covered:
                    continue  # Slurm does not know it any more
                waiting = report is None or report.phase is AllocationPhase.WAITING
                if waiting and (problem or report is None):
                    report = AllocationReport(AllocationPhase.WAITING, problem)
                if report is not None:
                    reports[f"{number}@{person}"] = report
        return reports

    def stop(self, handle: str, *, account: str = "") -> None:
        """Have the helper cancel a job, as soon as it runs."""
        number, _, person = handle.partition("@")
        row = self._put(person, HelperOperation.CANCEL, number, {"handles": [number]})
        ask_again(row, {"handles": [number]})

    def withdraw(self, name: str) -> bool:
        """Withdraw an order that no helper has taken."""
        return withdraw_request(pool_id=self._pool, operation=HelperOperation.SUBMIT, subject=name)

    def owners_of(self, name: str) -> frozenset[Owner]:
        """Return the owner of the job that proves an account, by the report of the helper."""
        person = person_proving(self._pool, name)
        if person is None:
            return frozenset()
        settings = self._settings
        options = {
            "job-name": name,
            "partition": settings.partition,
            "account": settings.account,
            "qos": settings.qos,
            "time": "1",
        }
        arguments = {"options": {key: value for key, value in options.items() if value}}
        row = self._put(person, HelperOperation.SUBMIT, name, arguments, _PROOF_SCRIPT)
        if row.answer is None:
            if row.state == HelperRequestState.ANSWERED:
                ask_again(row, arguments, _PROOF_SCRIPT)
            return frozenset()
        owner, number = row.answer.get("owner"), row.answer.get("owner_number")
        if owner is None or number is None:
            text = row.answer["text"]
            if is_temporary(text):
                ask_again(row, arguments, _PROOF_SCRIPT)
                return frozenset()
            text = text or "The helper did not report the owner of the job."
            refuse_proof(self._pool, name, text)
            return frozenset()
        return frozenset({Owner(owner, number)})

    def usage(self, handles: Sequence[str]) -> Mapping[str, Usage]:
        """Return what the last answers of the helpers have of ended jobs, and ask them again."""
        usages: dict[str, Usage] = {}
        for person, numbers in _by_person(handles).items():
            row = self._put(person, HelperOperation.USAGE, "", {"handles": numbers})
            ask_again(row, {"handles": numbers})
            self._outputs = row.answer or {}
            known = super().usage(numbers) if row.answer is not None else {}
            usages |= {f"{number}@{person}": known[number] for number in numbers if number in known}
        return usages

    def _put(
        self,
        person: str,
        operation: HelperOperation,
        subject: str,
        arguments: Mapping[str, Any],
        script: str = "",
    ) -> HelperRequest:
        return put_request(
            pool_id=self._pool,
            user_id=person,
            operation=operation,
            subject=subject,
            arguments=arguments,
            script=script,
        )

    def _run(
        self, *command: str, script: str = "", account: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Return what the helper reported of a command. Raises EngineAway without it."""
        result = self._outputs.get(command[0])
        if result is None:
            raise EngineAway(f"the helper has not reported what {command[0]} says")
        return subprocess.CompletedProcess(
            command, result["code"], result["output"], result["error"]
        )


def _option(word: str) -> tuple[str, str]:
    name, _, value = word.removeprefix("--").partition("=")
    return name, value


def _by_person(handles: Iterable[str]) -> dict[str, list[str]]:
    numbers: dict[str, list[str]] = {}
    for handle in sorted(handles):
        number, _, person = handle.partition("@")
        numbers.setdefault(person, []).append(number)
    return numbers


def _covered(row: HelperRequest) -> list[str]:
    """Return the jobs that the last answer is about."""
    return list(row.answer["handles"]) if row.answer is not None else []
