"""The form of a new dataset."""

from django import forms


class NewDataset(forms.Form):
    """Name and description of a new dataset."""

    name = forms.CharField(
        max_length=63,
        help_text="Lower-case letters, digits, dots, hyphens and underscores.",
        widget=forms.TextInput(
            attrs={"autocomplete": "off", "spellcheck": "false", "placeholder": "digits"}
        ),
    )
    description = forms.CharField(
        required=False,
        max_length=2000,
        help_text="Markdown.",
        widget=forms.Textarea(attrs={"rows": 3}),
    )
