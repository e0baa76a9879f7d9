"""How every form of the portal is drawn, those of libraries included."""

from django.forms.renderers import TemplatesSetting


class Renderer(TemplatesSetting):
    """Draws forms and fields with our templates: the error stands beside its field."""

    form_template_name = "web/forms/form.html"
    field_template_name = "web/forms/field.html"
