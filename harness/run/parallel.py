"""Independent calls at once, in an order that does not matter."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait


def run_parallel(calls: Iterable[Callable[[], None]], *, workers: int, stop: Callable[[], None]) -> None:
    """Run them in threads. What the first one raises is raised once those that had begun have ended.

    An interrupt calls `stop`, which must make those that run raise, and waits for none of them.
    """
    pool = ThreadPoolExecutor(workers)
    futures = [pool.submit(call) for call in calls]
    try:
        wait(futures, return_when=FIRST_EXCEPTION)
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        stop()
        raise
    pool.shutdown(wait=True, cancel_futures=True)
    for future in futures:
        if not future.cancelled():
            future.result()
