"""The only room that prints and that reads the keyboard."""
