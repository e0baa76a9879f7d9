"""Pages as UTF-8 can carry them, whatever the texts in them hold."""

from typing import Any

from django.http import HttpRequest
from django.template.backends.django import DjangoTemplates, Template
from django.utils.safestring import SafeString, mark_safe

from portal.core.text import whole_characters


class EncodableTemplate(Template):
    """A template whose result never fails to be encoded.

    Names, notebooks, logs and tags come from user code, and JSON may hold half a surrogate pair. A
    page shows U+FFFD for it, where encoding the page would end in a 500.
    """

    def render(
        self, context: dict[str, Any] | None = None, request: HttpRequest | None = None
    ) -> SafeString:
        """Render the template."""
        text = super().render(context, request)
        return mark_safe(whole_characters(text))  # noqa: S308  (rendered by the template)


class EncodableTemplates(DjangoTemplates):
    """Django's templates, each of them whole."""

    def from_string(self, template_code: str) -> EncodableTemplate:
        """Return a template made of text."""
        return EncodableTemplate(self.engine.from_string(template_code), self)

    def get_template(self, template_name: str) -> EncodableTemplate:
        """Return a template by its name, or raise TemplateDoesNotExist."""
        return EncodableTemplate(super().get_template(template_name).template, self)
