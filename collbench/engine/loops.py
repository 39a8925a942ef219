"""Ending an event loop so that nothing is left in it."""

from __future__ import annotations

import asyncio


def end_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Cancels what is left in a loop that no longer runs, and closes it."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
