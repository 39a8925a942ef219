"""Where trials run: the executor protocol, the local engine and the simulated one."""
