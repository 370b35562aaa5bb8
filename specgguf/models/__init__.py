"""Model files: how they are named, where they come from, what their headers say, and which drafts fit a target."""
