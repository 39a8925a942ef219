#!/usr/bin/env bash
# A sweep without any launcher: a shell on every node, and the same words but for the node's number.
#
#   on one node, once:  (umask 077 && openssl rand -hex 32 > secret)
#                       then copy the file to the other nodes (scp -p), or keep it on a shared folder
#   shell 1, gpu001:    examples/plain.sh 2 0 gpu001:29400 secret -b 8 -e 8G -f 2
#   shell 2, gpu002:    examples/plain.sh 2 1 gpu001:29400 secret -b 8 -e 8G -f 2
#
# The words are NODES, this NODE's number from 0, the address of node 0 with a free port, and the
# file with the secret, which nobody else may read (mode 0600).
set -euo pipefail

nodes=${1:?give the number of nodes}
node_rank=${2:?give the number of this node, from 0}
rendezvous=${3:?give HOST:PORT of node 0}
secret_file=${4:?give the file with the secret}
shift 4

exec python -m collbench sweep --nodes "$nodes" --node-rank "$node_rank" \
    --rendezvous "$rendezvous" --secret-file "$secret_file" "$@"
