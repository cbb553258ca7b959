/* halves splits the ranks in two, each of which has a communicator and checkpoints of its own.
 * usage: halves CONFIG write|read */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "veloc.h"

int main(int argc, char **argv)
{
    int rank, world, half, value, bad = 0;
    MPI_Comm mine;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    half = rank >= world / 2;
    MPI_Comm_split(MPI_COMM_WORLD, half, rank, &mine);
    if (VELOC_Init(mine, argv[1]) != VELOC_SUCCESS)
        MPI_Abort(MPI_COMM_WORLD, 2);
    VELOC_Mem_protect(0, &value, 1, sizeof value);
    if (argc > 2 && strcmp(argv[2], "write") == 0) {
        value = 10 + rank;
        bad += VELOC_Checkpoint("half", 5 + half) != VELOC_SUCCESS;
    }
    value = 0;
    bad += VELOC_Restart_test("half", 0) != 5 + half;
    bad += VELOC_Restart("half", 5 + half) != VELOC_SUCCESS || value != 10 + rank;
    bad += VELOC_Finalize(1) != VELOC_SUCCESS;
    MPI_Comm_free(&mine);
    MPI_Finalize();
    if (bad != 0)
        fprintf(stderr, "halves: rank %d: %d failures, value %d\n", rank, bad, value);
    return bad != 0;
}
