"""The options of the command line, in groups that commands share."""
