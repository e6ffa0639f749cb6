"""What the table of runs needs besides the list: groups, export, saved views, stars, tags and archived runs."""
