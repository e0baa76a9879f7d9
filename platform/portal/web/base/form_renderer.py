"""Renderer of all forms of the portal, including those of libraries."""

from django.forms.renderers import TemplatesSetting


class Renderer(TemplatesSetting):
    """Renders forms and fields with our templates: the error is next to its field."""

    form_template_name = "web/forms/form.html"
    field_template_name = "web/forms/field.html"
