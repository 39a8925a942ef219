"""A cluster out of network namespaces, and the launchers that start processes on it.

Real sockets, real links with a rate, real host names, on one machine without hardware.
"""
