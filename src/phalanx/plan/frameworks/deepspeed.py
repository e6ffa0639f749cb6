"""DeepSpeed: PyTorch's process group under another hood."""

from __future__ import annotations

from phalanx.plan.frameworks import pytorch

FRAMEWORK = pytorch.FRAMEWORK
