"""GPU usage, from nvidia-smi."""

from __future__ import annotations

import subprocess

_QUERY = "index,utilization.gpu,memory.used,memory.total"


def sample_gpus(indices: list[str]) -> list[dict[str, float]]:
    """Usage of the given GPUs; empty if nvidia-smi is missing or does not respond."""
    command = ["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits", "-i", ",".join(indices)]
    try:
        answer = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return parse_gpus(answer.stdout.decode("utf-8", "replace"))


def parse_gpus(text: str) -> list[dict[str, float]]:
    rows = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",")]
        try:
            index, used, memory, total = (float(part) for part in parts)
        except ValueError:
            continue
        rows.append({"index": index, "percent": used, "memory_mib": memory, "total_mib": total})
    return rows
