"""Reads what runs wrote into their folders, and keeps the database up to date with it."""
