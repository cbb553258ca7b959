/* heat is a bar that cools from its ends, as a program for VeloC: it includes veloc.h, links libveloc-client, and says
 * in heat.cfg where its checkpoints go. Kill it, start it again, also under another MPI: it goes on.
 *
 *     usage: heat CONFIG STEPS
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include <veloc.h>

#define CELLS 100000 /* of a rank */

static void check(int result, const char *what)
{
    if (result == VELOC_SUCCESS)
        return;
    fprintf(stderr, "heat: %s has failed\n", what); /* the library has said why */
    MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char **argv)
{
    static double u[CELLS + 2], next[CELLS + 2]; /* with a cell of each neighbour */
    double sum = 0, all;
    int rank, size, left, right, step = 0, version, i;

    if (argc != 3) {
        fprintf(stderr, "usage: heat CONFIG STEPS\n");
        return 2;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    left = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    right = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;
    for (i = 1; i <= CELLS; i++)
        u[i] = 100.0;

    check(VELOC_Init(MPI_COMM_WORLD, argv[1]), "VELOC_Init");
    check(VELOC_Mem_protect(0, &step, 1, sizeof step), "VELOC_Mem_protect");
    check(VELOC_Mem_protect(1, u, CELLS + 2, sizeof u[0]), "VELOC_Mem_protect");
    version = VELOC_Restart_test("heat", 0);
    if (version >= 0)
        check(VELOC_Restart("heat", version), "VELOC_Restart");
    if (rank == 0)
        printf("heat: begins at step %d\n", step);
    fflush(stdout);
    while (step < atoi(argv[2])) {
        MPI_Sendrecv(&u[1], 1, MPI_DOUBLE, left, 0, &u[CELLS + 1], 1, MPI_DOUBLE, right, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        MPI_Sendrecv(&u[CELLS], 1, MPI_DOUBLE, right, 1, &u[0], 1, MPI_DOUBLE, left, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        for (i = 1; i <= CELLS; i++)
            next[i] = u[i] + 0.25 * (u[i - 1] - 2 * u[i] + u[i + 1]);
        for (i = 1; i <= CELLS; i++)
            u[i] = next[i];
        if (++step % 100 == 0)
            check(VELOC_Checkpoint("heat", step), "VELOC_Checkpoint");
    }
    for (i = 1; i <= CELLS; i++)
        sum += u[i];
    MPI_Reduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("heat: ends at step %d, heat %.17g\n", step, all);
    check(VELOC_Finalize(1), "VELOC_Finalize");
    MPI_Finalize();
    return 0;
}
