"""Cluster profiles (nodes, limits, policy), and checks of plans against them."""

from phalanx.sites.model import GpuKind, NodeKind, Partition, Qos, Site
from phalanx.sites.profile_search import find

__all__ = ["GpuKind", "NodeKind", "Partition", "Qos", "Site", "find"]
