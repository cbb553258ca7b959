/* exported.c - a program without VeloC's header: it calls the VELOC_Init that the library exports. Run
 * twice: the second run restarts. */
#include <mpi.h>
#include <stdio.h>

int VELOC_Init(MPI_Comm comm, const char *cfg_file);
int VELOC_Mem_protect(int id, void *ptr, size_t count, size_t base_size);
int VELOC_Checkpoint(const char *name, int version);
int VELOC_Checkpoint_wait(void);
int VELOC_Restart_test(const char *name, int version);
int VELOC_Restart(const char *name, int version);
int VELOC_Finalize(int drain);

int main(int argc, char **argv)
{
    MPI_Comm part;
    int rank, version, bad, value = 0;

    MPI_Init(&argc, &argv);
    if (VELOC_Init(MPI_COMM_NULL, argv[1]) == 0)
        return 2; /* it says why */
    MPI_Comm_split(MPI_COMM_WORLD, 0, 0, &part); /* its handle is none of the constants */
    MPI_Comm_rank(part, &rank);
    bad = VELOC_Init(part, argv[1]) != 0 || VELOC_Mem_protect(0, &value, 1, sizeof value) != 0;
    version = bad ? -2 : VELOC_Restart_test("exported", 0);
    if (version > 0)
        bad = VELOC_Restart("exported", version) != 0 || value != rank + 100;
    value = rank + 100;
    bad = bad || VELOC_Checkpoint("exported", version > 0 ? version + 1 : 1) != 0 || VELOC_Checkpoint_wait() != 0;
    bad = VELOC_Finalize(1) != 0 || bad;
    if (rank == 0)
        printf("exported: restarted from version %d\n", version);
    MPI_Finalize();
    return bad;
}
