"""What GGUF files say of themselves, and whether a draft fits a target."""
