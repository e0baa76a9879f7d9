"""The picker of a version of Python: those that nodes have."""

from django import forms

from portal.compute.services.environments import default_python
from portal.compute.services.pythons import is_minor, offered_pythons, sorted_pythons


class PythonField(forms.CharField):
    """A version of Python. The service that uses it checks that a node has it."""

    def __init__(self, *, help_text: str) -> None:
        super().__init__(
            label="Python",
            required=False,
            max_length=8,
            help_text=help_text,
            widget=forms.Select,
        )


def offer_pythons(form: forms.Form, *, automatic: str = "") -> None:
    """Fill the picker of a form that is about to be shown.

    `automatic` are the words for no choice, in which `{}` is the version of the installation.
    Without them that version is chosen unless the form has another one.
    """
    widget = form.fields["python"].widget
    assert isinstance(widget, forms.Select)  # noqa: S101  (declared by the form)
    usual, chosen = default_python(), str(form["python"].value() or "")
    offered = offered_pythons() or [usual]
    if not automatic:
        form.initial.setdefault("python", usual)
        offered.append(str(form.initial["python"]))
    # A version that no node has any more stays chosen: the refusal says which there are.
    versions = sorted_pythons([*offered, *([chosen] if is_minor(chosen) else [])])
    general = [("", automatic.format(usual))] if automatic else []
    widget.choices = [*general, *((version, version) for version in versions)]
