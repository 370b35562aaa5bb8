"""Which file: what is known of models, how they are named, and whether two of them fit."""
