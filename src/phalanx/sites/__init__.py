"""What clusters have, allow and ask for: profiles, and the judging of plans by them."""

from phalanx.sites.locating import find
from phalanx.sites.model import GpuKind, NodeKind, Partition, Qos, Site

__all__ = ["GpuKind", "NodeKind", "Partition", "Qos", "Site", "find"]
