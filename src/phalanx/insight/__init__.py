"""What recorded runs tell of themselves: what was asked for and used, what would have done, how fast trials were."""
