"""Binding a host to the backend of a device: hooks are asked once, methods are called often."""

from statehal.binding.binding import Binding, bind
from statehal.binding.merge import BoundMethods

__all__ = ["Binding", "BoundMethods", "bind"]
