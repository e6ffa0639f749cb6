"""Programs that the scripts of jobs call: one for each batch job, beside its ranks."""
