"""Set up Django with the settings of the tests, in a folder that is removed at the end."""

import atexit
import os
import shutil

import django
from django.conf import settings


def set_up() -> None:
    """Set up Django, once per process."""
    is_outermost = "TESTS_FOLDER" not in os.environ
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    django.setup()
    if is_outermost:
        atexit.register(shutil.rmtree, settings.DATA_DIR, ignore_errors=True)
