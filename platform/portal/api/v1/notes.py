"""Notes about jobs, sweeps, notebook servers and endpoints."""

from django.http import HttpRequest
from ninja import Router

from portal.accounts.gates import gated_project
from portal.accounts.noted import NotedRole
from portal.accounts.principal import require_principal
from portal.accounts.services.notes import note_of, save_note
from portal.api.routing import gate
from portal.api.v1.serializers import note_out
from slipway.schemas.accounts import NoteIn, NoteOut, Role, Scope

router = Router(tags=["Notes"])
_NOTE = "/projects/{project}/notes/{kind}/{target}"


@router.get(_NOTE, auth=gate(NotedRole(Role.VIEWER, Scope.PROJECTS_READ)), response=NoteOut)
def get_note(request: HttpRequest, project: str, kind: str, target: str) -> NoteOut:
    """Get the notes about an object. They are empty, with version 0, if there are none.

    `kind` is `job`, `sweep`, `notebook` or `endpoint`, and `target` the id of a job, sweep or
    notebook server, or the name of an endpoint.
    """
    noted = NotedRole.stored(request)
    return note_out(note_of(gated_project(request), noted.kind.name, noted.id))


@router.put(_NOTE, auth=gate(NotedRole(Role.CONTRIBUTOR, Scope.PROJECTS_WRITE)), response=NoteOut)
def update_note(
    request: HttpRequest, project: str, kind: str, target: str, payload: NoteIn
) -> NoteOut:
    """Save the notes about an object, unless somebody has saved another version meanwhile.

    `kind` is `job`, `sweep`, `notebook` or `endpoint`, and `target` the id of a job, sweep or
    notebook server, or the name of an endpoint.
    """
    note = save_note(
        project=gated_project(request),
        noted=NotedRole.stored(request),
        by=require_principal(request).user,
        text=payload.text,
        version=payload.version,
    )
    return note_out(note)
