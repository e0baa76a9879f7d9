"""The settings of the test run: the real ones over a folder of its own."""

import logging
import os

from tests.folders import own_data_dir

os.environ["SLIPWAY_DATA_DIR"] = own_data_dir()
os.environ.setdefault("SLIPWAY_REDIS_PORT", "9")  # nobody listens on the discard port here
os.environ.setdefault("SLIPWAY_GATEWAY_PORT", "9")
os.environ.setdefault("SLIPWAY_VULNERABILITIES_URL", "off")  # tests reach loopback alone
os.environ.setdefault("SLIPWAY_API_REQUESTS_PER_MINUTE", "1000000")

from portal.config.settings import *  # noqa: F403
from portal.config.settings import ACCOUNT_RATE_LIMITS, DATA_DIR, STORAGES

# A person's hash takes a tenth of a second on purpose; a thousand test people should not.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
# Pages are tested without `collectstatic`; live servers use the real storage. WhiteNoise warns
# about a folder that is missing, and a warning is an error here.
STATIC_ROOT = DATA_DIR / "static"
STATIC_ROOT.mkdir(parents=True, exist_ok=True)
STORAGES = STORAGES | {
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
}
EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
ACCOUNT_RATE_LIMITS = ACCOUNT_RATE_LIMITS | {"login": "100000/m/ip", "signup": "100000/m/ip"}
# A line for each of many thousand requests would be written out four times and read by nobody; a
# test that reads lines asks for them: `caplog.at_level`.
logging.getLogger().setLevel(logging.WARNING)
