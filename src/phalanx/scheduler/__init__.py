"""The scheduler: it queues, starts, observes, retries and finishes runs."""
