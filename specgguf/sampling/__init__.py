"""From logits to a token, by noise that depends on nothing but seed, position and token."""
