/* halves splits the ranks in two, each of which has a communicator and checkpoints of its own, and then takes each rank
 * by itself. usage: halves CONFIG write|read */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "veloc.h"

/* Takes checkpoint `version` for the ranks of a communicator, or not, and restores it. */
static int use(MPI_Comm comm, int version, int save, int rank, const char *config)
{
    int value = 10 * version + rank, bad = 0;

    if (VELOC_Init(comm, config) != VELOC_SUCCESS)
        MPI_Abort(MPI_COMM_WORLD, 2);
    VELOC_Mem_protect(0, &value, 1, sizeof value);
    if (save)
        bad += VELOC_Checkpoint("half", version) != VELOC_SUCCESS;
    value = 0;
    bad += VELOC_Restart_test("half", 0) != version;
    bad += VELOC_Restart("half", version) != VELOC_SUCCESS || value != 10 * version + rank;
    bad += VELOC_Finalize(1) != VELOC_SUCCESS;
    return bad;
}

int main(int argc, char **argv)
{
    int rank, world, half, save, bad = 0;
    MPI_Comm mine;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    half = rank >= world / 2;
    save = argc > 2 && strcmp(argv[2], "write") == 0;
    MPI_Comm_split(MPI_COMM_WORLD, half, rank, &mine);
    bad += use(mine, 5 + half, save, rank, argv[1]);
    bad += use(MPI_COMM_SELF, 7, save, rank, argv[1]);
    MPI_Comm_free(&mine);
    MPI_Finalize();
    if (bad != 0)
        fprintf(stderr, "halves: rank %d: %d failures\n", rank, bad);
    return bad != 0;
}
