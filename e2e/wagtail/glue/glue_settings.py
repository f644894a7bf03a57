# Glue: the settings that the project template leaves to the deployment.
import os
from pathlib import Path

from example.settings.production import *

SECRET_KEY = "only for tests on this machine"
ALLOWED_HOSTS = ["127.0.0.1"]
ROOT_URLCONF = "glue_urls"
DATABASES["default"]["NAME"] = Path(os.environ["E2E_DIRECTORY"], "database")
# A SQLite transaction that starts with a read fails instead of waiting when it has to write.
DATABASES["default"]["OPTIONS"] = {"timeout": 30, "transaction_mode": "IMMEDIATE"}

MEDIA_ROOT = Path(os.environ["E2E_DIRECTORY"], "media")

# Django by itself neither serves static files in production nor gives its pages an ETag.
MIDDLEWARE = [
    "django.middleware.http.ConditionalGetMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    *MIDDLEWARE,
]

# By default Django reports errors in production by mail.
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
}
