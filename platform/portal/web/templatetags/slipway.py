"""Template tags and filters of every page. They are builtins, so no page loads them."""

import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any
from zlib import crc32

from django import template
from django.forms import BoundField
from django.template import Context
from django.urls import reverse
from django.utils.html import format_html, format_html_join, json_script
from django.utils.safestring import SafeString

from portal.accounts.models import AuditEvent, User
from portal.accounts.models.tenancy import Group
from portal.accounts.services.notes import note_of
from portal.compute.resources import Amount, amount_text, memory_text
from portal.core import clock
from portal.core.markdown import render_markdown
from portal.web.audit.messages import describe_event
from portal.web.base.breadcrumbs import Breadcrumb
from portal.web.base.breadcrumbs import breadcrumbs as breadcrumbs_of
from portal.web.base.dates import exact, lasting, relative_time
from portal.web.base.icons import svg
from portal.web.base.list_query import NEWEST
from portal.web.base.urls_for import address_of
from portal.web.docs.api_samples import samples_of
from portal.web.docs.links import docs_slug
from portal.web.jobs.presenters import JobStatus
from slipway.schemas.accounts import Role
from slipway.schemas.money import dollars, is_tiny, short_dollars
from slipway.schemas.percent import percent

register = template.Library()
AVATAR_TINTS = 8
_MIB = 1024**2
# Time format of the audit log.
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(\+00:00|Z)")


@register.simple_tag
def icon(name: str, extra: str = "") -> SafeString:
    """Render an icon. `extra` adds classes."""
    return svg(name, extra)


@register.simple_tag(takes_context=True)
def code_samples(context: Context) -> SafeString:
    """Embed the code samples of the API of the page, for the newest project of the reader."""
    principal = context["shell"].principal
    project = principal and principal.projects().live().order_by("-pk").first()
    return _embedded_samples(context["api"], project.slug if project else None)


@lru_cache(maxsize=64)
def _embedded_samples(api: Any, project: str | None) -> SafeString:
    return json_script(samples_of(api.get_openapi_schema(), project), "code-samples")


@register.simple_tag(takes_context=True)
def docs_link(context: Context) -> SafeString:
    """Link the page to the page of the documentation that explains it, if there is one."""
    request = context.get("request")
    match = getattr(request, "resolver_match", None)
    route = match.url_name or "" if match else ""
    slug = docs_slug(route, context.get("section") or "", context.get("area") or "")
    if slug is None:
        return SafeString("")
    project = getattr(request, "gated_project", None)
    return format_html(
        '<a class="btn btn-ghost docs-link" href="{}{}" title="Documentation of this page">{}'
        "<span>Docs</span></a>",
        reverse("docs_page", args=[slug]),
        f"?project={project.slug}" if project else "",
        svg("book-2", "icon-start"),
    )


@register.inclusion_tag("web/parts/breadcrumbs.html", takes_context=True)
def breadcrumbs(context: Context) -> dict[str, list[Breadcrumb]]:
    """Show the pages above this page, as `portal.web.base.breadcrumbs` declares them."""
    return {"breadcrumbs": breadcrumbs_of(context)}


@register.inclusion_tag("web/parts/note.html", takes_context=True)
def note_card(context: Context, kind: str, target: str, path: str) -> dict[str, Any]:
    """Show the notes about an object, and a link to edit them for those who may.

    `target` is the id of the object, and `path` what addresses name it by.
    """
    request = context["request"]
    project = request.gated_project
    may_edit = request.gated_role.at_least(Role.CONTRIBUTOR)
    return {
        "note": note_of(project, kind, target),
        "edit_url": may_edit and reverse("project_note", args=[project.slug, kind, path]),
    }


@register.filter
def as_percent(share: float | None) -> str:
    """Write a share as a percentage such as `97.5 %`, and None as nothing."""
    return "" if share is None else percent(share)


@register.filter
def when(moment: datetime | None, otherwise: str = "never") -> SafeString:
    """Show a time relative to now, with the exact UTC on hover."""
    if moment is None:
        return format_html('<span class="text-secondary">{}</span>', otherwise)
    return format_html(
        '<time datetime="{}" title="{}" data-relative>{}</time>',
        moment.isoformat(),
        exact(moment),
        relative_time(moment, clock.now()),
    )


@register.filter
def markdown(text: str) -> SafeString:
    """Show Markdown, without raw HTML and pictures."""
    return render_markdown(text)


@register.filter
def initials(user: User) -> str:
    """Return a person's one or two initials."""
    words = user.display_name.split()
    letters = words[0][:1] + (words[-1][:1] if len(words) > 1 else "") if words else "?"
    return letters.upper()


@register.filter
def tint(text: str) -> int:
    """The colour of an avatar: always the same one for the same text."""
    return crc32(str(text).encode()) % AVATAR_TINTS


@register.filter
def sentence(event: AuditEvent) -> str:
    """Return an audit event as a sentence."""
    return describe_event(event)


@register.filter
def facts(states: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """The before or after of an audit event as pairs fit to be read."""
    if not states:
        return []
    return [_fact(key, value) for key, value in states.items()]


def _fact(key: str, value: Any) -> tuple[str, str]:
    if key.endswith("nano_usd") and isinstance(value, int):
        return key.removesuffix("nano_usd").replace("_", " ").strip() or "amount", dollars(value)
    return key.replace("_", " "), _format_audit_value(value)


def _format_audit_value(value: Any) -> str:
    if value is None or value == "":
        return "nothing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_format_audit_value, value)) or "nothing"
    if isinstance(value, dict):
        return (
            ", ".join(f"{key} {_format_audit_value(part)}" for key, part in value.items())
            or "nothing"
        )
    if isinstance(value, str) and _MOMENT.fullmatch(value):
        return exact(datetime.fromisoformat(value))
    return str(value)


@register.filter
def control(field: BoundField) -> SafeString:
    """Render a form field's control with the class and the state its kind of widget has."""
    kind = field.widget_type
    base = {
        "select": "form-select",
        "checkbox": "form-check-input",
        "checkboxselectmultiple": "form-check-input",
        "radioselect": "form-check-input",
    }.get(kind, "form-control")
    given = str(field.field.widget.attrs.get("class", ""))
    invalid = "is-invalid" if field.errors else ""
    return field.as_widget(attrs={"class": " ".join(filter(None, (base, given, invalid)))})


@register.simple_tag
def live(topics: str, region: str, also: str = "") -> SafeString:
    """Make a region reload itself when one of `topics` (separated by commas) is notified.

    `region` is the id of the element that has the attributes. `also` names further regions of the
    page, separated by commas, that reload with it. Morphing preserves focus and input.
    """
    triggers = format_html_join(
        ", ",
        "live:{} from:body delay:150ms",
        ((topic.strip(),) for topic in f"{topics},stale".split(",")),
    )
    return _reload_attributes(triggers, region, also)


@register.simple_tag
def polls(seconds: int, region: str, also: str = "") -> SafeString:
    """Fetch a region anew every few seconds, for what changes without anybody saying so.

    Put it inside the region, and leave it out once nothing changes any more.
    """
    asking = _reload_attributes(format_html("every {}s", seconds), region, also)
    return format_html("<span hidden {}></span>", asking)


def _reload_attributes(triggers: SafeString, region: str, also: str) -> SafeString:
    others = [f"#{other.strip()}:outerMorph" for other in also.split(",") if other]
    return format_html(
        'hx-get="" hx-trigger="{}" hx-select="#{}" hx-target="#{}" hx-swap="outerMorph"{}',
        triggers,
        region,
        region,
        format_html(' hx-select-oob="{}"', ",".join(others)) if others else "",
    )


@register.simple_tag
def filters(region: str) -> SafeString:
    """Make a filter form update its list while typing, and store the view in the URL."""
    return format_html(
        'hx-get="" hx-trigger="input changed delay:250ms, change, submit" '
        'hx-select="#{0}-rows" hx-target="#{0}-rows" hx-swap="outerHTML" hx-replace-url="true" '
        'hx-sync="this:replace"',
        region,
    )


@register.simple_tag
def opens_dialog(url: str) -> SafeString:
    """Make a link to a confirmation open it as a dialog instead of leaving the page."""
    return format_html(
        'hx-get="{}" hx-target="#question" hx-select="#ask" hx-swap="innerHTML"', url
    )


@register.simple_tag
def group_url(group: Group, page: str = "", *args: str) -> str:
    """The address of a page of a project or team, for example of one member's removal."""
    return address_of(group, page, *args)


@register.simple_tag(takes_context=True)
def sort_header(context: Context, label: str, name: str, classes: str = "") -> SafeString:
    """Render the header of a sortable column. A second click reverses the order."""
    query = context["request"].GET.copy()
    sort = context["listing"].sort
    query.pop("cursor", None)
    query["sort"] = f"-{name}" if sort == name and name != NEWEST else name
    state = {name: "ascending", f"-{name}": "descending"}.get(sort)
    if name == NEWEST and state:
        state = "descending"
    sorted_by = format_html(' aria-sort="{}"', state) if state else ""
    mark = {"ascending": " ↑", "descending": " ↓"}.get(state or "", "")
    return format_html(
        '<th scope="col" class="{}"{}><a href="?{}">{}{}</a></th>',
        classes,
        sorted_by,
        query.urlencode(),
        label,
        mark,
    )


@register.inclusion_tag("web/parts/cli.html")
def terminal(name: str, line: str, *args: str, words: str = "") -> dict[str, str]:
    """Show a line that does the same from a terminal, with a button that copies it.

    `{}` in the line is replaced by the next argument, quoted for a shell.
    """
    return {
        "id": name,
        # Literals in templates are marked as safe HTML, but a line is text: adding "" unmarks it.
        "text": line.format(*map(shlex.quote, args)) + "",
        "words": words or "From the command line",
    }


@register.filter
def money(nano_usd: int, in_digits: bool = False) -> SafeString | str:
    """Show an amount of money: below a cent as that, with the exact amount where one points.

    `in_digits` shows the digits of any amount, for a list whose amounts are all that small.
    """
    if in_digits:
        return dollars(nano_usd)
    words = short_dollars(nano_usd)
    return (
        format_html("<span{}>{}</span>", exact, words) if (exact := _exactly(nano_usd)) else words
    )


@register.filter
def all_tiny(rows: Iterable[Any]) -> bool:
    """Return whether no row of a list costs a cent. Rows have `nano_usd`, or begin with one."""
    amounts = [(row[0] if isinstance(row, tuple) else row).nano_usd for row in rows]
    return not any(amount and not is_tiny(amount) for amount in amounts)


@register.filter
def price(nano_usd: int) -> str:
    """Show a unit price of something bought in large numbers: however small, as digits."""
    return dollars(nano_usd)


def _exactly(nano_usd: int) -> SafeString | str:
    return format_html(' title="{}"', dollars(nano_usd)) if is_tiny(nano_usd) else ""


@register.filter
def resources(amount: Amount, gpu_model: str = "") -> str:
    """Show CPUs, memory and GPUs."""
    return amount_text(amount, gpu_model)


@register.filter
def memory(size_bytes: int | None) -> str:
    """Show a number of bytes of memory or of a file."""
    if size_bytes is None:
        return "unknown"
    return memory_text(size_bytes) if size_bytes >= _MIB else f"{-(-size_bytes // 1024)} KiB"


@register.filter
def figure(value: float | None) -> str:
    """Show a measured value with six significant digits. NaN is shown as `undefined`."""
    if value is None:
        return ""
    if math.isnan(value):
        hint = "NaN was logged: the metric is undefined for this data."
        return format_html('<span class="text-secondary" title="{}">undefined</span>', hint)
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:.6g}"


@register.simple_tag
def counted(status: JobStatus) -> SafeString:
    """Show how long a job runs or waits. The browser updates it until the job ends."""
    goes_on = format_html(' data-counts-from="{}"', status.started_at.isoformat())
    return format_html(
        '<span class="counted"{}>{}</span>',
        "" if status.until else goes_on,
        lasting(status.lasted.total_seconds()),
    )


@register.simple_tag
def costing(status: JobStatus) -> SafeString:
    """Show the cost of a job so far. The browser updates it while hardware is held."""
    goes_on = format_html(
        ' data-cost="{}" data-rate="{}" data-cost-at="{}"',
        status.cost,
        status.rate,
        clock.now().isoformat(),
    )
    return format_html(
        '<span class="counted"{}{}>{}</span>',
        _exactly(status.cost),
        goes_on if status.rate else "",
        short_dollars(status.cost),
    )


@register.simple_tag
def ticking(nano_usd: int, nano_usd_per_hour: int = 0, in_digits: bool = False) -> SafeString:
    """Show an amount that counts on in the browser at what an hour costs now.

    `in_digits` is as in `money`.
    """
    goes_on = format_html(
        ' data-cost="{}" data-rate="{}" data-cost-at="{}"',
        nano_usd,
        nano_usd_per_hour,
        clock.now().isoformat(),
    )
    return format_html(
        '<span class="counted"{}{}{}>{}</span>',
        "" if in_digits else _exactly(nano_usd),
        goes_on if nano_usd_per_hour else "",
        SafeString(" data-digits") if in_digits and nano_usd_per_hour else "",
        dollars(nano_usd) if in_digits else short_dollars(nano_usd),
    )


@register.inclusion_tag("web/parts/sparkline.html")
def sparkline(counts: Sequence[int], noun: str) -> dict[str, str]:
    """Draw counts over time as a line, with its figures in words for those who cannot see it.

    `noun` names what is counted, such as `requests per minute in the last hour`.
    """
    highest = max(counts, default=0)
    step = 120 / max(1, len(counts) - 1)
    points = [
        f"{place * step:.1f},{23 - 22 * count / (highest or 1):.1f}"
        for place, count in enumerate(counts)
    ]
    if not highest:
        return {"points": " ".join(points), "label": f"No {noun}"}
    label = f"{noun[:1].upper()}{noun[1:]}: {counts[-1]} at the end, {highest} at most"
    return {"points": " ".join(points), "label": label}


@register.filter
def lasts(seconds: float) -> str:
    """Show how long something took."""
    return f"{seconds:.2f} s" if seconds < 10 else lasting(seconds)


@register.filter
def cpus(cpu_millis: int) -> str:
    """Show a number of CPUs, without the word."""
    return f"{cpu_millis / 1000:.3f}".rstrip("0").rstrip(".")
