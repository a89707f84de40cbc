"""A real Kubernetes cluster on one machine, without Docker: see README.md beside this file."""

from tests.lab.errors import LabError
from tests.lab.lab import Lab
from tests.lab.topology import Node, Topology

__all__ = ["Lab", "LabError", "Node", "Topology"]
