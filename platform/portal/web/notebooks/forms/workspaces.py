"""Forms of the files of a workspace: a new folder, another name, a deletion."""

from typing import Any

from django import forms

from slipway.schemas.workspace_files import MAX_PATH_BYTES, check_new_path

_TEXT = {"autocomplete": "off", "spellcheck": "false"}


def clean_path(text: str) -> str:
    """Return the path of something new. Raises forms.ValidationError."""
    try:
        return check_new_path(text)
    except ValueError as error:
        raise forms.ValidationError(f"This {error}.") from error


class PlaceForm(forms.Form):
    """Names the file that a form is about, in hidden fields."""

    area = forms.ChoiceField(
        choices=[("shared", "shared"), ("personal", "personal")], widget=forms.HiddenInput
    )
    node = forms.CharField(max_length=48, required=False, widget=forms.HiddenInput)
    path = forms.CharField(
        max_length=MAX_PATH_BYTES, required=False, strip=False, widget=forms.HiddenInput
    )


class NewFolder(PlaceForm):
    """A folder in the one that `path` names."""

    name = forms.CharField(max_length=255, strip=False, widget=forms.TextInput(attrs=_TEXT))

    def clean(self) -> dict[str, Any]:
        """Join the folder and the name."""
        data = super().clean() or {}
        if "name" in data:
            if "/" in data["name"]:
                raise forms.ValidationError({"name": "A name has no slash. Create one at a time."})
            folder = data.get("path", "")
            try:
                data["target"] = clean_path(f"{folder}/{data['name']}")
            except forms.ValidationError as error:
                raise forms.ValidationError({"name": error.messages}) from error
        return data


class MoveEntry(PlaceForm):
    """The new path of a file or folder, and whether it is in the shared or the personal folder."""

    target_area = forms.ChoiceField(
        label="Folder",
        choices=[("shared", "Shared (all members)"), ("personal", "Personal (you alone)")],
        help_text="Your notebook servers execute start-up files in Personal, such as .bashrc. "
        "Move only what you trust there.",
    )
    target = forms.CharField(
        label="New path",
        max_length=MAX_PATH_BYTES,
        strip=False,
        help_text="From the top of Shared or Personal. Folders in it must exist already.",
        widget=forms.TextInput(attrs=_TEXT),
    )
    replace = forms.BooleanField(label="Replace an existing file", required=False)

    def clean_target(self) -> str:
        """Check the path."""
        return clean_path(self.cleaned_data["target"])
