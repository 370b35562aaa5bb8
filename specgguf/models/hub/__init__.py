"""Where model files come from and where they lie. Nothing else imports `huggingface_hub`."""

import os

# Read when huggingface_hub is imported: the hub is asked for files and for nothing else.
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
