"""Files of every kind and dialect, all of them without faults."""

from __future__ import annotations

HEAD = "version: 1\nkind: experiment\n"

ALONE = """\
version: 1
kind: experiment
name: lenet
description: one process
tags: [vision, first]
logging: {level: DEBUG}
framework: keras
params: {lr: 0.01, layers: [64, 32], note: "it's"}
build: {image: "python:3.11", build_steps: [pip install keras], env_vars: [[A, b]]}
environment:
  resources: {cpu: {requests: "500m", limits: 2}, memory: {requests: 512, limits: "2Gi"}}
  node_selector: {disk: ssd}
  labels: {team: vision}
  annotations: {note: x}
  tolerations: [{key: gpu, operator: Exists}]
  affinity: {nodeAffinity: {a: [1, 2]}}
  env_vars: {EPOCHS: 3, FAST: true}
  secret_refs: [s3]
  data_refs: [images]
  max_restarts: 2
  timeout: 1h30m
run: {cmd: "python train.py --lr={{ lr }}"}
"""

MODERN = """\
version: 1
kind: experiment
framework: mxnet
environment:
  resources:
    cpu: {requests: 1, limits: 2}
    memory: {requests: 256, limits: 1024}
    gpu: {requests: 1, limits: 1}
  replicas:
    n_workers: 7
    n_ps: 3
    default_worker:
      resources:
        cpu: {requests: 1, limits: 2}
        memory: {requests: 256, limits: 1024}
        gpu: {requests: 1, limits: 1}
    worker:
      - index: 2
        resources:
          cpu: {requests: 1, limits: 2}
          memory: {requests: 256, limits: 1024}
    default_ps:
      resources:
        cpu: {requests: 1, limits: 1}
        memory: {requests: 256, limits: 256}
    ps:
      - index: 0
        resources:
          cpu: {requests: 1, limits: 1}
          memory: {requests: 512, limits: 512}
run:
  cmd: python train.py
"""

SECTION = """\
version: 1
kind: experiment
declarations: {batch: 32}
environment:
  tensorflow:
    n_workers: 2
    n_ps: 1
    delay_workers_by_global_step: true
    default_worker: {resources: {gpu: {request: 1, limit: 1}}}
    worker: [{index: 1, node_selector: {a: b}}]
run: {cmd: "train --batch {{ batch }}"}
"""

RESOURCES_LISTS = """\
version: 1
kind: experiment
environment:
  pytorch:
    n_workers: 3
    default_worker_resources: {cpu: {requests: 1, limits: 2}}
    worker_resources:
      - {index: 2, memory: {requests: 256, limits: 512}}
run:
  image: pytorch/pytorch:latest
  build_steps: [pip install x]
  cmd: python train.py
"""

FIRST_RELEASES = """\
version: 1
project: {name: mnist}
settings:
  logging: {level: INFO, path: /logs}
  matrix: {lr: {values: [0.1, 0.2]}}
  concurrent_experiments: 2
environment: {n_workers: 2, n_ps: 1}
run: {image: "tensorflow/tensorflow:1.4.1", cmd: "train --lr={{ lr }}"}
"""

GROUP = """\
version: 1
kind: group
framework: horovod
hptuning:
  concurrency: 4
  seed: 7
  random_search: {n_experiments: 10}
  early_stopping: [{metric: loss, value: 0.1, optimization: minimize}]
  matrix:
    lr: {logspace: "-4:-1:4"}
    units: {values: [64, 128]}
    dropout: {uniform: [0.1, 0.5]}
params: {epochs: 3}
environment: {replicas: {n_workers: 1}}
run: {cmd: "train --lr={{ lr }} --units={{ units }} --dropout={{ dropout }} --epochs={{ epochs }}"}
"""

HYPERBAND = """\
version: 1
kind: group
hptuning:
  hyperband:
    max_iter: 81
    eta: 3
    resource: {name: steps, type: int}
    metric: {name: loss, optimization: minimize}
  matrix: {lr: {uniform: "0:1"}}
run: {cmd: "train --lr={{ lr }} --steps={{ steps }}"}
"""

JOB = """\
version: 1
kind: job
inputs:
  - {name: rows, type: int, is_optional: true, default: 10}
  - {name: verbose, type: bool, is_flag: true, is_optional: true, default: true}
build: {image: "python:3.11"}
run: {cmd: ["make data ROWS={{ rows }} {{ verbose }}", make report]}
"""

BUILD = """\
version: 1
kind: build
image: python:3.11
build_steps: [pip install torch]
env_vars: [[A, b]]
backend: kaniko
"""

NOTEBOOK = "version: 1\nkind: notebook\nbackend: lab\nbuild: {image: 'jupyter:1'}\n"
TENSORBOARD = "version: 1\nkind: tensorboard\nbuild: {image: 'tensorflow:2.15'}\n"

PIPELINE = """\
version: 1
kind: pipeline
concurrency: 2
schedule: {kind: cron, cron: "0 0 * * *"}
ops:
  - {name: prepare, template: {name: cleaning}}
  - name: train
    template: {name: training}
    dependencies: [prepare]
    params: {lr: 0.1}
    max_retries: 2
  - {name: ship, template: {url: "https://example.org/ship.yml"}, dependencies: [train], trigger: all_done}
templates:
  - {name: cleaning, kind: job, run: {cmd: make clean}}
  - name: training
    kind: experiment
    framework: pytorch
    inputs: [{name: lr, type: float}]
    environment: {replicas: {n_workers: 2}}
    run: {cmd: "train --lr={{ lr }}"}
"""

ALL = {
    "alone": ALONE,
    "modern": MODERN,
    "section": SECTION,
    "resources lists": RESOURCES_LISTS,
    "first releases": FIRST_RELEASES,
    "group": GROUP,
    "hyperband": HYPERBAND,
    "job": JOB,
    "build": BUILD,
    "notebook": NOTEBOOK,
    "tensorboard": TENSORBOARD,
    "pipeline": PIPELINE,
}
