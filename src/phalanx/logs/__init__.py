"""Logs of replicas: merged, folded and searched in bounded memory, however long they are."""
