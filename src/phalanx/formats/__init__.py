"""Readers of other tools' files, without their libraries. Pure."""
