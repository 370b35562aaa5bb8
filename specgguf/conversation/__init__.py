"""Chats: what was said, and what answers."""
