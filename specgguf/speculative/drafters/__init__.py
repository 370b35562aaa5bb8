"""Who guesses the next tokens: one file a drafter."""
