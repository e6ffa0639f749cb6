echo localhost:2
