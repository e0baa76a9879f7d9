"""Shared by all pages: layout, navigation, lists, forms, errors."""
