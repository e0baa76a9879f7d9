"""Client of a Slipway server."""

from types import TracebackType
from typing import Self

import httpx

from slipway.connection import Connection
from slipway.credentials import chosen_token, chosen_url, clean_url
from slipway.resources.audit import Audit
from slipway.resources.batch_predictions import BatchPredictions
from slipway.resources.budgets import Budgets
from slipway.resources.datasets import Datasets
from slipway.resources.endpoints import Endpoints
from slipway.resources.environments import Environments
from slipway.resources.experiments import Experiments
from slipway.resources.invitations import Invitations
from slipway.resources.jobs import Jobs
from slipway.resources.members import Members
from slipway.resources.models import Models
from slipway.resources.node_groups import NodeGroups
from slipway.resources.nodes import Nodes
from slipway.resources.notebook_files import NotebookFiles
from slipway.resources.notebooks import Notebooks
from slipway.resources.notes import Notes
from slipway.resources.notifications import Notifications
from slipway.resources.optuna import OptunaStorages
from slipway.resources.pipelines import Pipelines
from slipway.resources.pools import Pools
from slipway.resources.projects import Projects
from slipway.resources.reports import ProjectReports
from slipway.resources.runs import Runs
from slipway.resources.schedules import Schedules
from slipway.resources.secrets import Secrets
from slipway.resources.service_accounts import ServiceAccounts
from slipway.resources.snapshots import Snapshots
from slipway.resources.spend import Spend
from slipway.resources.sweeps import Sweeps
from slipway.resources.teams import Teams
from slipway.resources.tiers import Tiers
from slipway.resources.tokens import Tokens
from slipway.resources.users import Users
from slipway.resources.workloads import Workloads
from slipway.resources.workspaces import Workspaces
from slipway.retries import Retries
from slipway.schemas.accounts import WhoAmI


class Client:
    """A signed-in client of one Slipway server.

    `url` and `token` default to SLIPWAY_URL and SLIPWAY_TOKEN, then to what `slipway login` has
    stored. `timeout_s` bounds connecting, and each wait for bytes, in seconds. `retries` says how
    often a failed request is sent again (only where that is safe: reads, deletions, and creations,
    which carry an Idempotency-Key). `transport` replaces the network in tests.

    Raises NotLoggedIn at once when there is no server or token. Every call raises SlipwayError.
    Use it as a context manager, or call `close`. It may be shared between threads, not across a
    fork.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout_s: float = 30.0,
        retries: Retries | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        address = clean_url(url) if url else chosen_url()
        self._connection = Connection(
            address,
            chosen_token(address, token),
            timeout_s=timeout_s,
            retries=retries or Retries(),
            transport=transport,
        )
        self.projects = Projects(self._connection)
        self.teams = Teams(self._connection)
        self.members = Members(self._connection)
        self.invitations = Invitations(self._connection)
        self.service_accounts = ServiceAccounts(self._connection)
        self.secrets = Secrets(self._connection)
        self.tokens = Tokens(self._connection)
        self.audit = Audit(self._connection)
        self.users = Users(self._connection)
        self.notifications = Notifications(self._connection)
        self.notes = Notes(self._connection)
        self.snapshots = Snapshots(self._connection)
        self.jobs = Jobs(self._connection)
        self.sweeps = Sweeps(self._connection)
        self.optuna = OptunaStorages(self._connection)
        self.pipelines = Pipelines(self._connection)
        self.schedules = Schedules(self._connection)
        self.environments = Environments(self._connection)
        self.models = Models(self._connection)
        self.endpoints = Endpoints(self._connection)
        self.datasets = Datasets(self._connection)
        self.batch_predictions = BatchPredictions(self._connection)
        self.experiments = Experiments(self._connection)
        self.runs = Runs(self._connection)
        self.reports = ProjectReports(self._connection)
        self.notebook_files = NotebookFiles(self._connection)
        self.tiers = Tiers(self._connection)
        self.pools = Pools(self._connection)
        self.node_groups = NodeGroups(self._connection)
        self.nodes = Nodes(self._connection)
        self.notebooks = Notebooks(self._connection)
        self.spend = Spend(self._connection)
        self.budgets = Budgets(self._connection)
        self.workloads = Workloads(self._connection)
        self.workspaces = Workspaces(self._connection)

    def __repr__(self) -> str:
        return f"<slipway.Client {self.url} token=***>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._connection.url

    def close(self) -> None:
        """Close the connections that stay open between requests."""
        self._connection.close()

    def whoami(self) -> WhoAmI:
        """Return the person, and the token, behind this client's requests."""
        return self._connection.fetch(WhoAmI, "GET", "whoami")
