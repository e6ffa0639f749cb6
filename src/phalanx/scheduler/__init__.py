"""The one loop with effects: queue, place, observe, settle, retry."""
