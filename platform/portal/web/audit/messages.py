"""Audit events in plain words. A verb without a sentence here is shown as it is written."""

from django.utils.html import format_html

from portal.accounts.models import AuditEvent

# `{label}` is the event's target, `{group}` its project or team.
_SENTENCES = {
    "project.create": "created the project {label}",
    "project.change": "edited the project {label}",
    "project.readme": "edited the README of {label}",
    "note.save": "edited the notes about {label}",
    "project.archive": "archived the project {label}",
    "project.restore": "restored the project {label}",
    "team.create": "created the team {label}",
    "team.change": "renamed the team {label}",
    "member.add": "joined {group}",
    "member.role": "changed the role of {label} in {group}",
    "member.remove": "removed {label} from {group}",
    "member.hand_over": "made {label} an owner of {group}",
    "invitation.create": "invited {label} to {group}",
    "invitation.accept": "accepted the invitation to {group}",
    "invitation.revoke": "withdrew the invitation of {label} to {group}",
    "token.create": "created the API token “{label}”",
    "token.revoke": "revoked the API token “{label}”",
    "token.revoke_all": "revoked all API tokens of {label}",
    "secret.create": "set the secret {label} in {group}",
    "secret.replace": "replaced the secret {label} in {group}",
    "secret.delete": "deleted the secret {label} of {group}",
    "workload.submit": "submitted {label} in {group}",
    "workload.stop": "stopped {label} in {group}",
    "workload.requeue": "requeued {label} in {group}",
    "workload.resume": "resumed {label} in {group}",
    "dataset.create": "created the dataset {label} in {group}",
    "dataset.edit": "edited the dataset {label} in {group}",
    "dataset.delete": "deleted the dataset {label} of {group}",
    "dataset.restore": "restored the dataset {label} in {group}",
    "dataset.version_commit": "committed a version of the dataset {label} in {group}",
    "dataset.version_delete": "deleted {label} of {group}",
    "dataset.version_restore": "restored {label} in {group}",
    "notebook.launch": "launched the notebook server {label} in {group}",
    "notebook.start": "started the notebook server {label} in {group}",
    "notebook.delete": "deleted the notebook server {label} of {group}",
    "notebook.key": "created an access token for the notebook server {label} in {group}",
    "workspace.upload": "wrote {label} in the workspace of {group}",
    "workspace.folder": "created the folder {label} in the workspace of {group}",
    "workspace.move": "moved {label} in the workspace of {group}",
    "workspace.delete": "deleted {label} in the workspace of {group}",
    "notebook.save": "saved {label} in {group}",
    "notebook.restore": "restored an earlier version of {label} in {group}",
    "notebook.edit": "changed the schedule of the notebook server {label} in {group}",
    "notebook.file_delete": "deleted the notebook {label} of {group}",
    "notebook.file_undelete": "restored {label} in {group}",
    "notebook.branch": "created {label} in {group} as a branch of a notebook",
    "notebook.verified": "verified {label} in {group}",
    "model.create": "created the model {label} in {group}",
    "model.register": "registered {label} in {group}",
    "model.update": "edited the model {label} in {group}",
    "model.rename": "renamed the model {label} in {group}",
    "model.delete": "deleted the model {label} of {group}",
    "model.batching": "changed the batching of {label} in {group}",
    "model.golden": "recorded golden predictions of {label} in {group}",
    "model.evaluate": "evaluated {label} in {group}",
    "model.promote": "promoted {label} in {group}",
    "model.override": "promoted {label} in {group} despite a closed gate",
    "model.request": "requested approval of {label} in {group}",
    "model.approve": "approved {label} in {group}",
    "model.reject": "rejected {label} in {group}",
    "model.withdraw": "withdrew the approval request for {label} in {group}",
    "model.alias": "set an alias of the model {label} in {group}",
    "model.alias_delete": "removed an alias of the model {label} in {group}",
    "model.alias_removed": "removed an alias of the model {label} in {group}",
    "model_version.create": "registered {label} in {group}",
    "model_version.stage": "moved {label} in {group} to another stage",
    "model_version.delete": "deleted {label} of {group}",
    "registry.rules": "changed the stages and gates of {group}",
    "endpoint.create": "created the endpoint {label} in {group}",
    "endpoint.change": "changed the endpoint {label} in {group}",
    "endpoint.promote": "promoted a version to the endpoint {label} in {group}",
    "endpoint.rollback": "rolled back the endpoint {label} in {group}",
    "endpoint.pause": "paused the endpoint {label} in {group}",
    "endpoint.resume": "resumed the endpoint {label} in {group}",
    "endpoint.delete": "deleted the endpoint {label} of {group}",
    "endpoint.key_create": "created an endpoint key in {group} ({label})",
    "endpoint.key_revoke": "revoked an endpoint key of {group} ({label})",
    "file.link": "created a link to the file {label} of {group}",
    "file.delete": "deleted the file {label} of {group}",
    "budget.create": "set the {label}",
    "budget.change": "changed the {label}",
    "budget.delete": "removed the {label}",
    "budget.override": "overrode the {label}",
    "rate.change": "changed the price of {label}",
    "gateway.admit": "registered the gateway {label}",
    "hub.admit": "registered the notebook hub {label}",
    "sweep.start": "started the sweep {label} in {group}",
    "sweep.pause": "paused the sweep {label} in {group}",
    "sweep.resume": "resumed the sweep {label} in {group}",
    "sweep.extend": "extended the sweep {label} in {group}",
    "sweep.stop": "stopped the sweep {label} in {group}",
    "report.create": "created the report {label} in {group}",
    "report.change": "edited the report {label} in {group}",
    "report.restore": "restored an earlier version of the report {label} in {group}",
    "report.delete": "deleted the report {label} of {group}",
    "report.share": "created a share link of the report {label} in {group}",
    "report.unshare": "turned off the share link of the report {label} in {group}",
    "view.create": "saved the view {label} of {group}",
    "view.change": "changed the saved view {label} of {group}",
    "view.share": "shared the saved view {label} with {group}",
    "view.delete": "deleted the saved view {label} of {group}",
    "run.update": "changed {label} of {group}",
    "run.move": "moved {label} of {group} to another experiment",
    "run.delete": "moved {label} of {group} to the trash",
    "run.restore": "restored {label} of {group} from the trash",
    "run.destroy": "emptied the trash of {label}",
    "experiment.delete": "moved the experiment {label} of {group} to the trash",
    "experiment.restore": "restored the experiment {label} of {group} from the trash",
    "named_environment.create": "created the environment {label} in {group}",
    "named_environment.version": "added a version of the environment {label} in {group}",
    "named_environment.change": "edited the environment {label} in {group}",
    "named_environment.build": "requested builds of the environment {label} in {group}",
    "named_environment.archive": "archived the environment {label} of {group}",
    "named_environment.restore": "restored the environment {label} of {group}",
    "named_environment.default": "changed the default environment of {group}",
    "environment.add": "created the environment {label} for {group}",
    "file.create": "stored the file {label} in {group}",
    "node.invite": "created a join token for a node ({label})",
    "node.join": "joined the node {label}",
    "node.cordon": "cordoned the node {label}",
    "node.uncordon": "uncordoned the node {label}",
    "node.isolation": "reported weaker isolation of the node {label}",
    "node.mix_projects": "allowed projects to mix on the node {label}",
    "node.separate_projects": "stopped mixing projects on the node {label}",
    "node.drain": "drained the node {label}",
    "node.remove": "removed the node {label}",
    "tier.create": "created the hardware tier {label}",
    "tier.change": "changed the hardware tier {label}",
    "pool.create": "created the pool {label}",
    "pool.change": "changed the pool {label}",
    "pool.remove": "removed the pool {label}",
    "pool.link": "linked an account in the pool {label}",
    "quota.set": "set the quota of {label}",
    "endpoint.watch": "changed the monitoring of {label} in {group}",
    "alert.raise": "raised an alert in {group}: {label}",
    "alert.resolve": "resolved an alert in {group}: {label}",
    "alert.snooze": "snoozed an alert in {group}: {label}",
    "alert_channel.create": "added an alert channel in {group}: {label}",
    "alert_channel.delete": "removed an alert channel in {group}: {label}",
    "prediction.label": "labelled predictions of {label} in {group}",
    "prediction.erase_ask": "requested deletion of predictions of {label} in {group}",
    "prediction.erase": "deleted predictions of {label} in {group}",
    "selection.create": "selected predictions in {group}: {label}",
    "selection.finish": "created a dataset version from predictions in {group}: {label}",
    "user.sign_in": "signed in",
    "user.sign_out": "signed out",
    "user.sign_up": "joined Slipway",
    "user.password": "changed the password",
    "user.rename": "changed their name",
    "user.change": "changed the account of {label}",
    "user.create": "created an account for {label}",
    "user.sign_out_everywhere": "ended the sessions of {label}",
    "user.end_session": "ended one session of {label}",
}
_KINDS = (
    *("project", "team", "member", "invitation", "token", "secret", "user"),
    *("workload", "notebook", "environment", "file", "node", "tier", "pool", "quota"),
    *("budget", "rate"),
    *("named_environment", "workspace", "sweep"),
    *("dataset", "dataset_version", "run", "experiment"),
    *("model", "model_version", "promotion_request", "registry_rules"),
    *("endpoint", "endpoint_key", "alert", "alert_channel", "selection", "erasure", "note"),
    *("gateway", "hub", "report"),
)
# Kinds of targets, and their display names.
KINDS = {kind: kind.replace("_", " ") for kind in _KINDS}
VERBS = tuple(_SENTENCES)


def describe_event(event: AuditEvent) -> str:
    """Describe an audit event, without the actor: `invited bob@example.org to vision`."""
    group = _group_of(event)
    if event.verb == "member.add" and event.actor != event.target_label:
        return f"added {event.target_label} to {group}"
    known = _SENTENCES.get(event.verb)
    if known is None:
        noun, _, verb = event.verb.partition(".")
        return f"{verb.replace('_', ' ')} · {noun} {event.target_label}"
    return known.format(label=event.target_label, group=group)


def describe_linked(event: AuditEvent, url: str) -> str:
    """Describe an audit event as HTML in which the name of the target links to `url`."""
    known = _SENTENCES.get(event.verb)
    if known is None:
        return describe_event(event)
    link = '<a class="text-decoration-underline" href="{}">{}</a>'
    label = format_html(link, url, event.target_label)
    return format_html(known, label=label, group=_group_of(event))


def _group_of(event: AuditEvent) -> str:
    return event.project_slug or event.team_slug or "a group"
