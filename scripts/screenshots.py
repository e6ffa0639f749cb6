"""Creates the screenshots of docs/images with a temporary home, a real server and chromium.

    screenshots.py [--into FOLDER] [--theme dark]

The sweep is written with the tracking format and past times; the distributed run, which fails, and the search are real.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect, sync_playwright

from phalanx.home.home import Home
from phalanx.ingest import external_runs
from phalanx.spool import PointWriter
from phalanx.store import Store

ROOT = Path(__file__).resolve().parent.parent
PHALANX = str(Path(sys.executable).with_name("phalanx"))
WIDTH, HEIGHT = 1400, 800
LARGEST = 250_000  # bytes of a picture
STEPS = 300
COLUMNS = "metric.val/loss,metric.val/accuracy,metric.throughput,params.lr,params.optimizer,project,took,created_at"
RATES = (0.0003, 0.001, 0.003, 0.01)
TRAIN = """
import math, os, random, time
from phalanx import tracking

rank, here = int(os.environ["PHALANX_RANK"]), os.environ["PHALANX_REPLICA"]
chance = random.Random(rank)
print(f"rank {rank} of {os.environ['PHALANX_WORLD_SIZE']} joins", flush=True)
for step in range(400):
    loss = 2.3 * math.exp(-step / 60) + 0.35 + chance.gauss(0, 0.02)
    values = {"train/loss": loss, "val/loss": loss + 0.1, "val/accuracy": 1 - loss / 3}
    tracking.log({**values, "throughput": chance.gauss(840, 15)}, step=step)
    time.sleep(0.12 if rank == 5 else 0.04)
    if step % 20 == 0:
        print(f"step {step}: loss {loss:.4f}", flush=True)
    if here == "worker-6" and step == 180:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
"""
SEARCH = """
import math, random, sys
from phalanx import tracking

rate, dropout, optimizer, epochs = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3], int(sys.argv[4])
if optimizer == "sgd" and rate > 0.2:
    sys.exit(1)
chance = random.Random(f"{rate} {dropout}")
best = 0.3 + 0.12 * abs(math.log(rate) + 5) + (0.15 if optimizer == "sgd" else 0) + abs(dropout - 0.1) / 4
for epoch in range(epochs):
    tracking.log({"val/loss": best + 1.5 * math.exp(-(epoch + 1) / 4) + chance.gauss(0, 0.02)}, step=epoch)
"""


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--into", type=Path, default=ROOT / "docs" / "images")
    options.add_argument("--theme", choices=["light", "dark"], default="light")
    chosen = options.parse_args()
    chosen.into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="phalanx-pictures-") as name:
        base = Path(name)
        sweep = fill(base / "home")
        with serving(base) as (url, token):
            failed, running = start_runs(base)
            group = run_search(base)
            pages = {
                "runs": (f"/runs?columns={COLUMNS}", seen_runs),
                "run": (f"/runs/{failed}", seen_run),
                "group": (f"/runs/{group}", seen_group),
                "compare": (f"/compare?{'&'.join(f'run={run}' for run in sweep)}&by=lr&smooth=0.3", seen_compare),
            }
            take(url, token, pages, chosen.into, chosen.theme)
            call(base, "stop", running)


# Runs ----------------------------------------------------------------------------------------------------------------


def fill(place: Path) -> list[str]:
    """The runs of a sweep over rates, optimizers and seeds, the last of them some minutes old."""
    home = Home(place)
    chance = random.Random(11)  # noqa: S311 - noise, not secrets
    ids = []
    begin = time.time() - 30 * 3600
    with Store.open(place) as store:
        for number in range(24):
            rate, optimizer, seed = RATES[number % 4], ("adamw", "sgd")[number // 4 % 2], number // 8
            params = {"lr": rate, "optimizer": optimizer, "seed": seed, "batch_size": 256, "epochs": 30}
            at = begin + number * 3900
            run, attempt = external_runs.create(
                home,
                project="imagenet",
                source="a sweep",
                name=f"resnet50-{optimizer}-{rate:g}-s{seed}",
                tags=["sweep", optimizer],
                params=params,
                created_at=at,
                user="ann",
            )
            ended = train(attempt, at, rate, optimizer, chance)
            status, reason = ("failed", "loss is not finite") if number == 11 else ("succeeded", "finished")
            external_runs.finish(home, run.id, status, reason, ended)
            external_runs.adopt(home, store, run.id)
            external_runs.index_now(home, store, run)
            ids.append(run.id)
    return ids


def train(attempt: Path, begin: float, rate: float, optimizer: str, chance: random.Random) -> float:
    """Log an hour of training. Returns when it ended."""
    best = 0.9 + 0.9 * abs(math.log10(rate) + 2.7) + (0.12 if optimizer == "sgd" else 0.0) + chance.gauss(0, 0.03)
    pace = chance.uniform(50, 75)
    writer = PointWriter(attempt / "client-1.points")
    for step in range(STEPS):
        loss = best + 5.2 * math.exp(-step / pace) + chance.gauss(0, 0.05)
        values = {"train/loss": loss, "throughput": chance.gauss(2450, 12) - 30 * math.exp(-step / 9)}
        if step % 5 == 0:
            values |= {"val/loss": loss + 0.1 + chance.gauss(0, 0.02), "val/accuracy": 0.88 - 0.11 * loss}
        writer.add(step * 100, begin + pace / 5 * step, values)
    writer.close()
    return begin + pace / 5 * STEPS


def start_runs(base: Path) -> tuple[str, str]:
    """A failed distributed run, and a running one."""
    work = base / "work"
    work.mkdir()
    (work / "train.py").write_text(TRAIN)
    environment = {"replicas": {"n_workers": 7}, "resources": {"cpu": {"requests": 0.1}}}
    file = {"version": 1, "kind": "experiment", "framework": "plain", "environment": environment}
    (work / "train.yml").write_text(json.dumps({**file, "run": {"cmd": f"{sys.executable} train.py"}}))
    wait = {**file, "environment": {"resources": {"cpu": {"requests": 0.1}}}, "run": {"cmd": "sleep 600"}}
    (work / "wait.yml").write_text(json.dumps(wait))
    flags = ["--project", "imagenet", "--json"]
    told = call(base, "run", "-f", "train.yml", "--name", "resnet50-8-ranks", "-P", "lr=0.003", *flags)
    failed = str(json.loads(told)["id"])
    running = call(base, "run", "-d", "-f", "wait.yml", "--name", "resnet50-evaluation", "--project", "imagenet")
    return failed, running.strip()


def run_search(base: Path) -> str:
    """A real search that has ended."""
    (base / "work" / "search.py").write_text(SEARCH)
    matrix = {"lr": {"loguniform": "-9:-1"}, "dropout": {"uniform": "0:0.5"}, "optimizer": {"values": ["adamw", "sgd"]}}
    metric = {"name": "val/loss", "optimization": "minimize"}
    resource = {"name": "epochs", "type": "int"}
    asha = {"n_experiments": 60, "max_iter": 27, "eta": 3, "resource": resource, "metric": metric}
    given = " ".join(f"{{{{ {name} }}}}" for name in (*matrix, "epochs"))
    file = {
        "version": 1,
        "kind": "group",
        "hptuning": {"concurrency": 4, "seed": 7, "matrix": matrix, "asha": asha},
        "environment": {"resources": {"cpu": {"requests": 0.1}}},
        "run": {"cmd": f"{sys.executable} search.py {given}"},
    }
    (base / "work" / "search.yml").write_text(json.dumps(file))
    told = call(base, "run", "-f", "search.yml", "--name", "resnet50-search", "--project", "imagenet", "--json")
    return str(json.loads(told)["id"])


# The server and the browser ------------------------------------------------------------------------------------------


def environment(base: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PHALANX_")}
    return {**kept, "PHALANX_HOME": str(base / "home")}


def call(base: Path, *arguments: str) -> str:
    done = subprocess.run(
        [PHALANX, *arguments], cwd=base / "work", env=environment(base), stdout=subprocess.PIPE, text=True, check=False
    )
    return done.stdout


@contextmanager
def serving(base: Path) -> Iterator[tuple[str, str]]:
    command = [PHALANX, "serve", "--port", "0", "--json"]
    server = subprocess.Popen(command, env=environment(base), stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        told = json.loads(server.stdout.readline())
        yield str(told["url"]), Path(told["token_file"]).read_text().strip()
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)


def take(
    url: str, token: str, pages: Mapping[str, tuple[str, Callable[[Page], None]]], into: Path, theme: Any = "light"
) -> None:
    path = shutil.which("chromium")
    assert path is not None, "there is no chromium: `make screenshots` installs it"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--no-proxy-server"])
        context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=theme)
        context.request.post(f"{url}/api/v1/session", data={"token": token})
        for name, (address, seen) in pages.items():
            page = context.new_page()
            page.goto(url + address)
            seen(page)
            target = into / f"{name}.png"
            page.screenshot(path=target, animations="disabled")
            size = target.stat().st_size
            print(f"{target}: {size // 1000} kB")
            assert size < LARGEST, f"{target} is larger than {LARGEST} bytes"
        browser.close()


def seen_runs(page: Page) -> None:
    expect(page.locator(".runs-name")).not_to_have_count(0)
    expect(page.get_by_text("running", exact=True).first).to_be_visible(timeout=30_000)
    page.wait_for_function("() => !document.querySelector('.bone')")


def seen_run(page: Page) -> None:
    expect(page.get_by_role("region", name="First failure")).to_be_visible()
    expect(page.get_by_role("region", name="Metrics")).to_contain_text("loss")


def seen_group(page: Page) -> None:
    expect(page.get_by_role("region", name="Importance")).to_contain_text("of 60 trials")
    page.set_viewport_size({"width": WIDTH, "height": 1060})


def seen_compare(page: Page) -> None:
    page.locator(".chart .u-over").nth(3).wait_for()


if __name__ == "__main__":
    main()
