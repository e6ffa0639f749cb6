"""The processes of one server, and what they share."""
