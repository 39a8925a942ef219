#!/usr/bin/env bash
# A sweep over the hosts of a file, one process a host, started by mpirun (Open MPI or MPICH).
#
#   examples/mpirun.sh HOSTS [SWEEP'S ARGUMENTS]
#   examples/mpirun.sh hosts.txt -b 8 -e 8G -f 2
#
# HOSTS has one host name a line. The same environment (PATH, the virtual environment) has to be on
# every host. The processes meet by mpi4py where it is installed; with Open MPI else by the results
# folder, which all hosts then share. Otherwise add --rendezvous FIRST_HOST:29400.
set -euo pipefail

hosts=${1:?give a file with one host name a line}
shift
count=$(grep -cvE '^[[:space:]]*(#|$)' "$hosts")

# The secret by which the processes of this run know each other. Options name the variable, never
# its value: a command line can be read by everybody on the host.
if [ -z "${COLLBENCH_SECRET:-}" ]; then
    COLLBENCH_SECRET=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
fi
export COLLBENCH_SECRET

# No binding to cores: each rank is bound to the cores of its GPU by collbench.
case $(mpirun --version) in
*"Open MPI"*)
    # Hosts with several networks: --mca oob_tcp_if_include eth0 (Open MPI 5: --prtemca).
    exec mpirun --hostfile "$hosts" -n "$count" --map-by ppr:1:node --bind-to none \
        -x COLLBENCH_SECRET -x PATH python -m collbench sweep "$@"
    ;;
*)
    exec mpirun -f "$hosts" -n "$count" -ppn 1 -bind-to none \
        -genvlist COLLBENCH_SECRET,PATH python -m collbench sweep "$@"
    ;;
esac
