"""What the left rail offers. A room that gets pages adds its entry here, and only then.

Rooms below `web` may not import it, so the list names their routes; nothing that is not finished
stands in it.
"""

from dataclasses import dataclass

from slipway.schemas.accounts import Role


@dataclass(frozen=True)
class Entry:
    """One line of the rail. `route` is a route name; `section` marks the pages that light it up.

    `role` is the least role in the project or team that sees a project's or team's entry;
    `administrators` hides an entry from everyone else.
    """

    label: str
    icon: str
    route: str
    section: str
    role: Role = Role.VIEWER
    administrators: bool = False


RAIL = (
    Entry("Home", "home", "home", "home"),
    Entry("Projects", "folders", "projects", "projects"),
    Entry("Teams", "users", "teams", "teams"),
    Entry("Spend", "coins", "spend", "spend"),
)
IN_PROJECT = (
    Entry("Overview", "layout-dashboard", "project", "overview"),
    Entry("Notebooks", "notebook", "project_notebooks", "notebooks"),
    Entry("Notebook files", "book", "project_notebook_files", "notebook_files"),
    Entry("Jobs", "rocket", "project_jobs", "jobs"),
    Entry("Datasets", "folder", "project_datasets", "datasets"),
    Entry("Experiments", "flask", "project_experiments", "experiments"),
    Entry("Models", "packages", "project_models", "models"),
    Entry("Endpoints", "broadcast", "project_endpoints", "endpoints"),
    Entry("Spend", "coins", "project_spend", "spend"),
    Entry("Members", "users", "project_members", "members"),
    Entry("Secrets", "lock", "project_secrets", "secrets", Role.CONTRIBUTOR),
    Entry("Audit log", "history", "project_audit", "audit", Role.MAINTAINER),
    Entry("Project settings", "settings", "project_settings", "settings", Role.MAINTAINER),
)
IN_TEAM = (
    Entry("Overview", "layout-dashboard", "team", "overview"),
    Entry("Members", "users", "team_members", "members"),
    Entry("Audit log", "history", "team_audit", "audit", Role.MAINTAINER),
    Entry("Team settings", "settings", "team_settings", "settings", Role.MAINTAINER),
)
IN_SETTINGS = (
    Entry("Profile", "user", "profile", "profile"),
    Entry("Password", "lock", "account_change_password", "password"),
    Entry("Sessions", "devices", "sessions", "sessions"),
    Entry("API tokens", "key", "tokens", "tokens"),
    Entry("Audit log", "history", "audit", "audit"),
    Entry("People", "user-cog", "people", "people", administrators=True),
    Entry("Nodes", "server-2", "nodes", "nodes", administrators=True),
    Entry("Hardware tiers", "cpu", "tiers", "tiers", administrators=True),
    Entry("Quotas", "gauge", "quotas", "quotas", administrators=True),
)
