"""Who guesses the next tokens: one file a drafter, and what they are made of."""
