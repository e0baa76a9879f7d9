"""Template tags and filters of every page; they are built in, so no page loads them."""

from django import template

register = template.Library()
