"""Page of the documentation for each area of the portal."""

# By the beginning of the route's name, longest first.
_BY_ROUTE = (
    ("project_endpoint_monitoring", "monitoring"),
    ("project_endpoint_predictions", "monitoring"),
    ("project_batch_prediction", "batch_predictions"),
    ("project_rules", "models"),
    ("project_readme", "reports"),
    ("project_note", "reports"),
    ("pool_account", "pools"),
)
_BY_SECTION = {
    "overview": "quickstart",
    "notebooks": "notebooks",
    "notebook_files": "notebook-files",
    "jobs": "training",
    "pipelines": "pipelines",
    "schedules": "schedules",
    "environments": "environments",
    "datasets": "datasets",
    "experiments": "experiments",
    "models": "models",
    "endpoints": "endpoints",
    "reports": "reports",
    "spend": "spend",
    "members": "concepts",
    "service_accounts": "service-accounts",
    "secrets": "concepts",
    "audit": "concepts",
    "settings": "concepts",
    "tokens": "cli",
    "profile": "concepts",
    "people": "operating",
    "nodes": "operating",
    "pools": "pools",
    "node_groups": "node-groups",
    "tiers": "operating",
    "quotas": "operating",
}
_BY_AREA = {"home": "quickstart", "projects": "concepts", "teams": "concepts", "spend": "spend"}


def docs_slug(route: str, section: str, area: str) -> str | None:
    """Return the page that explains a page of the portal, or None where there is none."""
    for prefix, slug in _BY_ROUTE:
        if route.startswith(prefix):
            return slug
    return _BY_SECTION.get(section) or _BY_AREA.get(area)


def linked_slugs() -> set[str]:
    """Return every page that a page of the portal links to."""
    return {slug for _, slug in _BY_ROUTE} | {*_BY_SECTION.values(), *_BY_AREA.values()}
