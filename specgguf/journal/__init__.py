"""A row for every answer, in the user's state folder: what operating it needs to know."""
