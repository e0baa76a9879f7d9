"""Entries of the left rail. An app adds its entry here once it has pages.

Apps below `web` may not import it, so the list has the names of their routes. Unfinished pages
have no entry.
"""

from dataclasses import dataclass

from slipway.schemas.accounts import Role


@dataclass(frozen=True)
class NavigationEntry:
    """Entry of the rail. `route` is a route name. `section` marks the pages that highlight it.

    `role` is the lowest role in the project or team that sees the entry of a project or team.
    `administrators` hides an entry from everyone else. Entries of the same `group` are behind one
    button, at the place of the first of them.
    """

    label: str
    icon: str
    route: str
    section: str
    role: Role = Role.VIEWER
    administrators: bool = False
    group: str = ""


DEVELOP = "Develop"
MANAGE = "Manage"
GROUP_ICONS = {DEVELOP: "code", MANAGE: "adjustments"}

RAIL = (
    NavigationEntry("Home", "home", "home", "home"),
    NavigationEntry("Projects", "folders", "projects", "projects"),
    NavigationEntry("Teams", "users", "teams", "teams"),
    NavigationEntry("Spend", "coins", "spend", "spend"),
)
IN_PROJECT = (
    NavigationEntry("Overview", "layout-dashboard", "project", "overview"),
    NavigationEntry("Notebooks", "notebook", "project_notebooks", "notebooks", group=DEVELOP),
    NavigationEntry(
        "Notebook files", "book", "project_notebook_files", "notebook_files", group=DEVELOP
    ),
    NavigationEntry(
        "Workspace files",
        "folders",
        "project_workspace",
        "workspace",
        Role.CONTRIBUTOR,
        group=DEVELOP,
    ),
    NavigationEntry("Jobs", "rocket", "project_jobs", "jobs", group=DEVELOP),
    NavigationEntry("Sweeps", "chart-line", "project_sweeps", "sweeps", group=DEVELOP),
    NavigationEntry("Pipelines", "sitemap", "project_pipelines", "pipelines", group=DEVELOP),
    NavigationEntry("Schedules", "clock", "project_schedules", "schedules", group=DEVELOP),
    NavigationEntry(
        "Environments", "stack-2", "project_environments", "environments", group=DEVELOP
    ),
    NavigationEntry("Datasets", "folder", "project_datasets", "datasets"),
    NavigationEntry("Experiments", "flask", "project_experiments", "experiments", group=DEVELOP),
    NavigationEntry("Models", "packages", "project_models", "models"),
    NavigationEntry("Endpoints", "broadcast", "project_endpoints", "endpoints"),
    NavigationEntry("Reports", "file-text", "project_reports", "reports"),
    NavigationEntry("Spend", "coins", "project_spend", "spend", group=MANAGE),
    NavigationEntry("Members", "users", "project_members", "members", group=MANAGE),
    NavigationEntry(
        "Service accounts",
        "user-cog",
        "project_service_accounts",
        "service_accounts",
        group=MANAGE,
    ),
    NavigationEntry(
        "Secrets", "lock", "project_secrets", "secrets", Role.CONTRIBUTOR, group=MANAGE
    ),
    NavigationEntry(
        "Audit log", "history", "project_audit", "audit", Role.MAINTAINER, group=MANAGE
    ),
    NavigationEntry(
        "Project settings",
        "settings",
        "project_settings",
        "settings",
        Role.MAINTAINER,
        group=MANAGE,
    ),
)
IN_TEAM = (
    NavigationEntry("Overview", "layout-dashboard", "team", "overview"),
    NavigationEntry("Members", "users", "team_members", "members"),
    NavigationEntry("Audit log", "history", "team_audit", "audit", Role.MAINTAINER),
    NavigationEntry("Team settings", "settings", "team_settings", "settings", Role.MAINTAINER),
)
IN_SETTINGS = (
    NavigationEntry("Profile", "user", "profile", "profile"),
    NavigationEntry("Password", "lock", "account_change_password", "password"),
    NavigationEntry("Sessions", "devices", "sessions", "sessions"),
    NavigationEntry("API tokens", "key", "tokens", "tokens"),
    NavigationEntry("Audit log", "history", "audit", "audit"),
    NavigationEntry("People", "user-cog", "people", "people", administrators=True),
    NavigationEntry("Nodes", "server-2", "nodes", "nodes", administrators=True),
    NavigationEntry("Node groups", "stack-2", "node_groups", "node_groups", administrators=True),
    NavigationEntry("Pools", "topology-star-3", "pools", "pools", administrators=True),
    NavigationEntry("Hardware tiers", "cpu", "tiers", "tiers", administrators=True),
    NavigationEntry("Quotas", "gauge", "quotas", "quotas", administrators=True),
)
