/* heat is a program as users of VeloC write them: a strip of a plate on each rank, saved as memory or as a file of its
 * own, and taken up again by a second start.
 *
 *     usage: heat CONFIG mem|file|begin STEPS RESULT [OPTION]
 *     OPTION: abort-at STEP | kill-at STEP | restart-at VERSION | leave | drain
 *
 * begin calls the parts of VELOC_Checkpoint and VELOC_Restart one by one. restart-at takes that version, whatever
 * VELOC_Restart_test says; leave ends without VELOC_Finalize. RESULT.RANK takes the strip at the end. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "veloc.h"

#define COLS 64
#define ROWS 48
#define EVERY 10

static int rank, size;

static void leave(const char *what)
{
    fprintf(stderr, "heat: rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 9);
}

static void check(int result, const char *call)
{
    if (result != VELOC_SUCCESS)
        leave(call);
}

static void compute(double *g, double *h)
{
    int i, j;

    memcpy(h, g, sizeof(double) * COLS * (ROWS + 2));
    if (rank > 0)
        MPI_Sendrecv(&g[COLS], COLS, MPI_DOUBLE, rank - 1, 0, h, COLS, MPI_DOUBLE, rank - 1, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    if (rank < size - 1)
        MPI_Sendrecv(&g[ROWS * COLS], COLS, MPI_DOUBLE, rank + 1, 0, &h[(ROWS + 1) * COLS], COLS, MPI_DOUBLE, rank + 1,
                     0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (i = 1; i <= ROWS; i++)
        for (j = 1; j < COLS - 1; j++)
            g[i * COLS + j] = 0.25 * (h[(i - 1) * COLS + j] + h[(i + 1) * COLS + j] + h[i * COLS + j - 1] +
                                      h[i * COLS + j + 1]);
}

static void write_file(const char *path, int step, const double *g)
{
    FILE *f = fopen(path, "wb");

    if (f == NULL || fwrite(&step, sizeof step, 1, f) != 1 || fwrite(g, sizeof *g, COLS * (ROWS + 2), f) == 0 ||
        fclose(f) != 0)
        leave("cannot write the file");
}

static void read_file(const char *path, int *step, double *g)
{
    FILE *f = fopen(path, "rb");

    if (f == NULL || fread(step, sizeof *step, 1, f) != 1 ||
        fread(g, sizeof *g, COLS * (ROWS + 2), f) != COLS * (ROWS + 2) || fclose(f) != 0)
        leave("cannot read the file");
}

static void save(const char *mode, int step, const double *g)
{
    char name[VELOC_MAX_NAME], original[64];

    if (strcmp(mode, "mem") == 0) {
        check(VELOC_Checkpoint("heat", step), "checkpoint");
        return;
    }
    check(VELOC_Checkpoint_wait(), "wait");
    check(VELOC_Checkpoint_begin("heat", step), "begin");
    if (strcmp(mode, "file") == 0) {
        snprintf(original, sizeof original, "out/sub/heat-%d-%d.dat", rank, step);
        check(VELOC_Route_file(original, name), "route");
        write_file(name, step, g);
    } else
        check(VELOC_Checkpoint_mem(), "mem");
    check(VELOC_Checkpoint_end(1), "end");
}

static void load(const char *mode, int version, int *step, double *g)
{
    char name[VELOC_MAX_NAME];

    if (strcmp(mode, "mem") == 0) {
        check(VELOC_Restart("heat", version), "restart");
        return;
    }
    check(VELOC_Restart_begin("heat", version), "restart begin");
    if (strcmp(mode, "file") == 0) {
        check(VELOC_Route_file("another.dat", name), "route");
        read_file(name, step, g);
    } else
        check(VELOC_Recover_mem(), "recover");
    check(VELOC_Restart_end(1), "restart end");
}

int main(int argc, char **argv)
{
    static double g[COLS * (ROWS + 2)], h[COLS * (ROWS + 2)];
    const char *mode = argv[2], *option = argc > 5 ? argv[5] : "";
    int step = 0, steps = atoi(argv[3]), version, i, at = argc > 6 ? atoi(argv[6]) : 0, provided;
    char name[4096];

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (i = 0; i < COLS * (ROWS + 2); i++)
        g[i] = (i * 7 + rank * 13) % 101;
    check(VELOC_Init(MPI_COMM_WORLD, argv[1]), "init");
    check(VELOC_Mem_protect(0, &step, 1, sizeof step), "protect the step");
    check(VELOC_Mem_protect(1, h, COLS * (ROWS + 2), sizeof(double)), "protect h");
    check(VELOC_Mem_protect(2, g, COLS * (ROWS + 2), sizeof(double)), "protect g");
    version = VELOC_Restart_test("heat", 0);
    if (rank == 0)
        printf("heat: restart test says %d\n", version);
    if (strcmp(option, "restart-at") == 0)
        version = at;
    if (version >= 0)
        load(mode, version, &step, g);
    if (rank == 0)
        printf("heat: begins at step %d\n", step);
    fflush(stdout);
    while (step < steps) {
        compute(g, h);
        step++;
        if (step % EVERY == 0)
            save(mode, step, g);
        if (strcmp(option, "abort-at") == 0 && step == at) {
            check(VELOC_Checkpoint_wait(), "wait");
            MPI_Barrier(MPI_COMM_WORLD);
            if (rank == size / 2)
                MPI_Abort(MPI_COMM_WORLD, 7);
            MPI_Barrier(MPI_COMM_WORLD);
        }
        if (strcmp(option, "kill-at") == 0 && step == at && rank == size - 1)
            kill(getpid(), SIGKILL);
    }
    snprintf(name, sizeof name, "%s.%d", argv[4], rank);
    write_file(name, step, g);
    if (rank == 0)
        printf("heat: ends at step %d\n", step);
    fflush(stdout);
    if (strcmp(option, "leave") != 0)
        check(VELOC_Finalize(strcmp(option, "drain") == 0), "finalize");
    MPI_Finalize();
    return 0;
}
