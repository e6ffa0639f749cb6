"""Analysis of recorded runs: requested and used resources, advice, failures and speed."""
