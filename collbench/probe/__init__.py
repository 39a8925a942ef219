"""Facts of host, GPU, NIC and NCCL; reading only."""
