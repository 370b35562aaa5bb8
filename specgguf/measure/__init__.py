"""Speed and sameness, measured."""
