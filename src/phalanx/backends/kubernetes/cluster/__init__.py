"""Access to a cluster: API client, credentials, discovery and settings."""
