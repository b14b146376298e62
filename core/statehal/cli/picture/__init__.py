"""A plan as one HTML file that needs nothing else: how a page is laid out, and how slabs divide into pages."""

from statehal.cli.picture.html import render
from statehal.cli.picture.numbers import size

__all__ = ["render", "size"]
