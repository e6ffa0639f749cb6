"""The HTTP server of a home: tracking for remote runs, MLflow's API, files, and the web page.

FastAPI is imported only here, and only by `phalanx serve`; `tokens` needs the standard library alone.
"""
