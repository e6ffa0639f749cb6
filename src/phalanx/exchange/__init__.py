"""Readers and writers of other tools' formats: how runs move in and out. Nothing of a source is ever executed."""
