"""What clusters have, allow and ask for: profiles, and the judging of plans by them."""

from phalanx.sites.model import GpuKind, NodeKind, Partition, Qos, Site
from phalanx.sites.profile_search import find

__all__ = ["GpuKind", "NodeKind", "Partition", "Qos", "Site", "find"]
