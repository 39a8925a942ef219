"""What is known of NCCL: the grammar of its variables, what can run where, when they are read."""
