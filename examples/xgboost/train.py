"""Boosting over all replicas: each has its own share of the data, and all grow the same trees.

The first rank also runs the tracker, where the ranks find each other. It goes on from its last checkpoint when there is
one.
"""

import argparse
import hashlib
import os
import time
from pathlib import Path

import numpy as np
import xgboost
from xgboost import collective
from xgboost.tracker import RabitTracker

from phalanx.tracking.callbacks import PhalanxXGBoost

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--lr", type=float, default=0.3)
parser.add_argument("--pause", type=float, default=0.0, help="seconds to rest after each round, for those who watch")
options = parser.parse_args()

rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
checkpoint = Path(os.environ.get("PHALANX_OUTPUTS", "outputs")) / "checkpoint.ubj"


class Checkpoint(xgboost.callback.TrainingCallback):
    """The booster after every round, written by the first rank."""

    def after_iteration(self, model, epoch, evals_log):  # noqa: ARG002
        collective.allreduce(np.zeros(1), collective.Op.SUM)  # all have logged this round: resuming leaves no gap
        if rank == 0:
            draft = checkpoint.with_name("draft.ubj")
            model.save_model(draft)
            draft.replace(checkpoint)
        time.sleep(options.pause)
        return False


def train() -> xgboost.Booster:
    draw = np.random.default_rng(rank)
    x = draw.normal(size=(512, 4))
    data = xgboost.DMatrix(x, x @ np.array([1.0, -2.0, 3.0, 0.5]) + 0.1 * draw.normal(size=512))
    saved = xgboost.Booster(model_file=checkpoint) if checkpoint.exists() else None
    return xgboost.train(
        {"eta": options.lr, "max_depth": 4, "nthread": 1},
        data,
        num_boost_round=options.steps - (saved.num_boosted_rounds() if saved else 0),
        xgb_model=saved,
        evals=[(data, "train")],  # its error is that of all ranks together
        verbose_eval=False,
        callbacks=[PhalanxXGBoost(log_model=True, name="xgboost-example"), Checkpoint()],
    )


if size == 1:
    booster = train()
else:
    host, port = os.environ["DMLC_TRACKER_URI"], int(os.environ["DMLC_TRACKER_PORT"])
    if rank == 0:
        tracker = RabitTracker(n_workers=size, host_ip=host, port=port, sortby="task")
        tracker.start()
    # XGBoost numbers the ranks by their task ids, as texts
    with collective.CommunicatorContext(
        dmlc_tracker_uri=host, dmlc_tracker_port=port, dmlc_task_id=f"{rank:06}", dmlc_retry=10
    ):
        booster = train()
    if rank == 0:
        tracker.wait_for()

digest = hashlib.sha256(booster.save_raw("json")).hexdigest()
print(f"rank {rank} of {size} done, weights {digest}", flush=True)
