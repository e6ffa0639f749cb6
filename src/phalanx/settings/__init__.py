"""Settings of a home, which its owner writes: <home>/config.yml."""
