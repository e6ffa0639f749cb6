"""The JSON of the REST API as pydantic models, one module for each group of routes.

Handlers encode responses themselves, which is faster; `response_model` documents them, and the tests compare every
answer with its model. Requests are validated by their models: see `http.request_models`.
"""
