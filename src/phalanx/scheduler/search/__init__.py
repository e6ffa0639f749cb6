"""What a running group needs beside its journal: decisions, budget, metrics that are watched, earlier results."""
