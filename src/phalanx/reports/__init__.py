"""Reports: Markdown with charts and tables of runs. Their records, and one HTML file of each."""
