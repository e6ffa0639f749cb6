"""Groups beside their journal: decisions, budget, metrics that are watched, earlier results, and what people see."""
