"""DeepSpeed: wired like PyTorch, whose process group it uses."""

from __future__ import annotations

from phalanx.plan.frameworks import pytorch

FRAMEWORK = pytorch.FRAMEWORK
