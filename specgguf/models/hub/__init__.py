"""Fetches model files and keeps them on this machine. No other room imports `huggingface_hub`."""

import os

# Read when huggingface_hub is imported: it is to request files and nothing else.
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
