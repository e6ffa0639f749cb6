"""The one way in for runs: checks, submission, clones, resumes, removal. Used by CLI, server and Python alike."""
