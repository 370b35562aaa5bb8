"""Text and small files."""
