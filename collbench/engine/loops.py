"""Ending an event loop so that nothing is left in it."""

from __future__ import annotations

import asyncio
from typing import Any


def end_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Cancels what is left in a loop that no longer runs, and closes it."""
    loop.run_until_complete(_cancelled(asyncio.all_tasks(loop)))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


async def _cancelled(tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
