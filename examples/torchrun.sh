#!/usr/bin/env bash
# A sweep started by torchrun, one process a node. Run it on every node, with the same words:
#
#   examples/torchrun.sh NODES FIRST:PORT [SWEEP'S ARGUMENTS]
#   examples/torchrun.sh 4 gpu001:29400 -b 8 -e 8G -f 2
#
# FIRST is one of the nodes, by a name or an address that the others reach; torchrun's own store
# listens there, and collbench's processes meet through it. COLLBENCH_SECRET, if it is set, has to be
# the same on every node; without, node 0 draws one and hands it over in that store.
set -euo pipefail

nodes=${1:?give the number of nodes}
first=${2:?give FIRST:PORT, the node where all meet}
shift 2

# --max-restarts=0: a second start would be another run.
exec torchrun --nnodes="$nodes" --nproc-per-node=1 --max-restarts=0 \
    --rdzv-backend=c10d --rdzv-endpoint="$first" --rdzv-id="collbench-$first" \
    -m collbench sweep "$@"
