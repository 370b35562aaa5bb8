"""Where model files come from and where they lie. Nothing else imports `huggingface_hub`."""
