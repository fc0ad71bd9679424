"""The engine: Docling without torch. Only `daemon.engine.api` may be imported where nothing native may be."""
