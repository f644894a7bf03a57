# Glue: the settings that the project template leaves to whoever deploys it.
import os
from pathlib import Path

from example.settings.production import *

SECRET_KEY = "only for tests on this machine"
ALLOWED_HOSTS = ["127.0.0.1"]
ROOT_URLCONF = "glue_urls"
DATABASES["default"]["NAME"] = Path(os.environ["E2E_DIRECTORY"], "database")
# A transaction that begins as a reader cannot wait to become a writer: SQLite calls the database locked.
DATABASES["default"]["OPTIONS"] = {"timeout": 30, "transaction_mode": "IMMEDIATE"}

MEDIA_ROOT = Path(os.environ["E2E_DIRECTORY"], "media")

# Django by itself neither serves static files in production nor gives its pages an ETag.
MIDDLEWARE = [
    "django.middleware.http.ConditionalGetMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    *MIDDLEWARE,
]

# By itself Django tells of an error in production by mail.
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
}
