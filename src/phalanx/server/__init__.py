"""What other programs ask of a home over HTTP: tracking for runs elsewhere, MLflow's API, files, and later the page.

FastAPI is imported here and nowhere else, and only by `phalanx serve`; `tokens` needs the standard library alone.
"""
