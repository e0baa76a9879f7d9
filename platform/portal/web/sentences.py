"""Audit events in plain words. A verb without a sentence here is shown as it is written."""

from portal.accounts.models import AuditEvent

# `{label}` is what the event is about; `{group}` the project or team it happened in.
_SENTENCES = {
    "project.create": "created the project {label}",
    "project.change": "edited the project {label}",
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
    "token.create": "made the API token “{label}”",
    "token.revoke": "revoked the API token “{label}”",
    "secret.create": "wrote the secret {label} in {group}",
    "secret.replace": "replaced the secret {label} in {group}",
    "secret.delete": "deleted the secret {label} of {group}",
    "workload.submit": "submitted {label} in {group}",
    "workload.stop": "stopped {label} in {group}",
    "workload.requeue": "put {label} back into the queue of {group}",
    "run.delete": "put {label} of {group} in the bin",
    "run.restore": "took {label} of {group} out of the bin",
    "run.destroy": "emptied the bin of {label}",
    "experiment.delete": "put experiment {label} of {group} in the bin",
    "experiment.restore": "took experiment {label} of {group} out of the bin",
    "environment.add": "made the environment {label} for {group}",
    "file.create": "stored the file {label} in {group}",
    "node.invite": "made a token for a node to join ({label})",
    "node.join": "joined the node {label}",
    "node.cordon": "cordoned the node {label}",
    "node.uncordon": "opened the node {label} for work again",
    "node.drain": "drained the node {label}",
    "node.remove": "removed the node {label}",
    "tier.create": "offered the hardware tier {label}",
    "tier.change": "changed the hardware tier {label}",
    "quota.set": "set the quota of {label}",
    "endpoint.watch": "changed how {label} of {group} is watched",
    "alert.raise": "raised an alert in {group}: {label}",
    "alert.resolve": "saw an alert in {group} end: {label}",
    "alert.snooze": "snoozed an alert in {group}: {label}",
    "alert_channel.create": "let alerts of {group} be told: {label}",
    "alert_channel.delete": "stopped telling alerts of {group}: {label}",
    "prediction.label": "labelled predictions of {label} in {group}",
    "prediction.erase_ask": "asked to erase predictions of {label} in {group}",
    "prediction.erase": "erased predictions of {label} in {group}",
    "selection.create": "chose predictions in {group}: {label}",
    "selection.finish": "made data of predictions in {group}: {label}",
    "user.sign_in": "signed in",
    "user.sign_out": "signed out",
    "user.sign_up": "joined Slipway",
    "user.password": "changed the password",
    "user.rename": "changed their name",
    "user.change": "changed the account of {label}",
    "user.create": "made an account for {label}",
    "user.sign_out_everywhere": "ended the sessions of {label}",
    "user.end_session": "ended one session of {label}",
}
KINDS = (
    *("project", "team", "member", "invitation", "token", "secret", "user"),
    *("workload", "environment", "file", "node", "tier", "quota", "run", "experiment"),
)
VERBS = tuple(_SENTENCES)


def sentence_of(event: AuditEvent) -> str:
    """Say what happened, without the actor: `invited bob@example.org to vision`."""
    group = event.project_slug or event.team_slug or "a group"
    if event.verb == "member.add" and event.actor != event.target_label:
        return f"added {event.target_label} to {group}"
    known = _SENTENCES.get(event.verb)
    if known is None:
        noun, _, verb = event.verb.partition(".")
        return f"{verb.replace('_', ' ')} · {noun} {event.target_label}"
    return known.format(label=event.target_label, group=group)
