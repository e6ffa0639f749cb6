# What all replicas of run r-1 have in common.
set -- "$@" '"'127.0.0.1:"$(($2 + 0))"'"'
export PHALANX_RUN_ID=r-1
export PHALANX_RUN_NAME=report
export PHALANX_PROJECT=default
export PHALANX_WORLD_SIZE=1
export PHALANX_PARAMS='{"title": "it'"'"'s \"so\" $(here)"}'
export PHALANX_OUTPUTS="$1"/outputs
export POLYAXON_IS_MANAGED=true
export POLYAXON_PARAMS='{"title": "it'"'"'s \"so\" $(here)"}'
export POLYAXON_DECLARATIONS='{"title": "it'"'"'s \"so\" $(here)"}'
export POLYAXON_LOG_LEVEL=INFO
export POLYAXON_LOGS_PATH="$1"/logs
export POLYAXON_RUN_OUTPUTS_PATH="$1"/outputs
export POLYAXON_RUN_DATA_PATHS='{}'
export POLYAXON_JOB_INFO='{"app": "polyaxon-job", "role": "polyaxon-workers", "type": "polyaxon-runner", "project_name": "default", "project_uuid": "f0c05bbecd60537888d19f4c60d50325", "job_name": "default.report", "job_uuid": "9fdc87017b8e551bb04cc979d557c49a"}'
export PHALANX_CLUSTER='{''"master": ['"${3}"']''}'
export POLYAXON_CLUSTER='{''"master": ['"${3}"']''}'
