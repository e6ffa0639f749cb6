# What all replicas of run r-1 have in common.
set -- "$@" '"'127.0.0.1:"$(($2 + 0))"'"'
set -- "$@" '"'127.0.0.1:"$(($2 + 1))"'"'
set -- "$@" '"'127.0.0.1:"$(($2 + 2))"'"'
export PHALANX_RUN_ID=r-1
export PHALANX_RUN_NAME=r-1
export PHALANX_PROJECT=default
export PHALANX_WORLD_SIZE=3
export PHALANX_PARAMS='{}'
export PHALANX_OUTPUTS="$1"/outputs
export POLYAXON_IS_MANAGED=true
export POLYAXON_PARAMS='{}'
export POLYAXON_DECLARATIONS='{}'
export POLYAXON_LOG_LEVEL=INFO
export POLYAXON_LOGS_PATH="$1"/logs
export POLYAXON_RUN_OUTPUTS_PATH="$1"/outputs
export POLYAXON_RUN_DATA_PATHS='{''"images"'': "'"$1"/data/images'"''}'
export POLYAXON_EXPERIMENT_INFO='{"app": "polyaxon-experiment", "role": "polyaxon-workers", "type": "polyaxon-runner", "project_name": "default", "project_uuid": "f0c05bbecd60537888d19f4c60d50325", "experiment_name": "default.r-1", "experiment_uuid": "9fdc87017b8e551bb04cc979d557c49a"}'
export PHALANX_CLUSTER='{''"master": ['"${3}"']'', ''"worker": ['"${4}"']'', ''"ps": ['"${5}"']''}'
export POLYAXON_CLUSTER='{''"master": ['"${3}"']'', ''"worker": ['"${4}"']'', ''"ps": ['"${5}"']''}'
