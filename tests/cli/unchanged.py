"""Training scripts that know nothing of Phalanx: what libraries write by default, without the libraries."""

from __future__ import annotations

from pathlib import Path

SAVES = """
import time
for epoch in range(3):
    print(f"epoch {epoch} loss {1 / (epoch + 1):.3f}")
with open("mnist_cnn.pt", "wb") as stream:
    stream.write(b"weights" * 100)
with open("history.csv", "w") as stream:
    stream.write("epoch,loss\\n0,1\\n")
"""

# What `SummaryWriter()` writes: ./runs/<time>_<host>/events.out.tfevents.<time>.<host>.<pid>.<number>
BOARD = """
import os, socket, struct, sys, time

def crc(data):
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    value ^= 0xFFFFFFFF
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF

def record(content):
    length = struct.pack("<Q", len(content))
    return length + struct.pack("<I", crc(length)) + content + struct.pack("<I", crc(content))

def field(number, data):
    return bytes([number << 3 | 2, len(data)]) + data

def scalar(tag, value, step):
    summary = field(1, field(1, tag.encode()) + b"\\x15" + struct.pack("<f", value))
    return record(b"\\x09" + struct.pack("<d", time.time()) + b"\\x10" + bytes([step]) + field(5, summary))

folder = os.path.join("runs", sys.argv[1] if len(sys.argv) > 1 else "now")
os.makedirs(folder, exist_ok=True)
name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}.0"
with open(os.path.join(folder, name), "wb") as stream:
    stream.write(record(b"\\x09" + struct.pack("<d", time.time()) + field(3, b"brain.Event:2")))
    for step in range(1, 6):
        stream.write(scalar("loss", 1 / step, step))
        stream.flush()
        while os.path.exists("hold") and step == 3:
            time.sleep(0.05)
open(os.path.join(folder, "hparams.yaml"), "w").write("lr: 0.1\\n")
"""

# What MLflow's file store writes: ./mlruns/<experiment>/<run>
MLRUNS = """
import os, time, uuid
run_id, now = uuid.uuid4().hex, int(time.time() * 1000)
run = os.path.join("mlruns", "0", run_id)
for part in ("metrics", "params", "tags", "artifacts"):
    os.makedirs(os.path.join(run, part))
def write(path, text):
    with open(os.path.join(*path), "w") as stream:
        stream.write(text)
write(("mlruns", "0", "meta.yaml"), "experiment_id: '0'\\nname: Default\\nlifecycle_stage: active\\n")
write((run, "meta.yaml"), f"run_id: {run_id}\\nrun_uuid: {run_id}\\nexperiment_id: '0'\\nrun_name: swift-fox\\n"
      f"status: 3\\nstart_time: {now}\\nend_time: {now}\\nlifecycle_stage: active\\nuser_id: me\\n")
write((run, "metrics", "accuracy"), f"{now} 0.5 0\\n{now} 0.75 1\\n")
write((run, "params", "lr"), "0.1")
write((run, "tags", "team"), "vision")
write((run, "artifacts", "plot.txt"), "a plot")
"""


def write_script(folder: Path, text: str, name: str = "train.py") -> str:
    """The command that runs it."""
    (folder / name).write_text(text)
    return f"python3 {name}"
