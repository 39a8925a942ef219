"""Placeholder."""
import psutil
def free_memory_bytes() -> int:
    return psutil.virtual_memory().available
def last_level_cache_bytes() -> int:
    return 32*2**20
