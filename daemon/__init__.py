"""Bulkhead: a daemon that turns other people's documents into Markdown, in children that may die."""

__version__ = "0.1.0"
