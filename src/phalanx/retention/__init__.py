"""Which outputs of finished runs are kept, and the safe removal of the others. Metrics, params and logs always stay."""
