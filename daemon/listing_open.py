"""The listings that the settings name.

Shell. Makes one client for all of them; talks to nobody yet.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from botocore.exceptions import BotoCoreError

from daemon.config import Settings
from daemon.errors import ConfigurationError
from daemon.fetch_s3 import new_client
from daemon.listing import Listing, Wanted
from daemon.listing_inventory import Inventory, in_bucket, on_disk
from daemon.listing_s3 import S3Prefix


def open_listings(settings: Settings) -> tuple[Listing, ...]:
    """Prefixes first, then the inventory. Raises `ConfigurationError` when the SDK's own set-up is wrong."""
    sweep = settings.sweep
    if not (sweep.prefixes or sweep.inventory):
        return ()
    try:
        client = new_client(settings.store)
    except (BotoCoreError, ValueError) as error:
        raise ConfigurationError(f"cannot list sources: {error}. Check the store.* settings.") from error
    ours = tuple(f"{url.rstrip('/')}/" for url in (settings.store.url, settings.store.checkpoints_url) if url)
    for url in sweep.prefixes:
        if url.startswith(ours):
            raise ConfigurationError(
                f"cannot list {url}: results are written there. Give store.url or store.checkpoints_url another place."
            )
    wanted = Wanted(suffixes=tuple(suffix.lower() for suffix in sweep.suffixes), ours=ours)
    listings: list[Listing] = [S3Prefix(client, url, wanted=wanted) for url in sweep.prefixes]
    if sweep.inventory:
        in_s3 = sweep.inventory.startswith("s3://")
        opened = partial(in_bucket, client, sweep.inventory) if in_s3 else partial(on_disk, Path(sweep.inventory))
        listings.append(Inventory(sweep.inventory, opened, columns=sweep.inventory_columns, wanted=wanted))
    return tuple(listings)
