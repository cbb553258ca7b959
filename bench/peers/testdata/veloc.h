/* The calls of VeloC that the driver makes, for a stand-in that the test builds. */
#include <mpi.h>
#include <stddef.h>
#define VELOC_SUCCESS 0
int VELOC_Init(MPI_Comm comm, const char *cfg);
int VELOC_Mem_protect(int id, void *ptr, size_t count, size_t base);
int VELOC_Checkpoint(const char *name, int version);
int VELOC_Checkpoint_wait(void);
int VELOC_Restart_test(const char *name, int version);
int VELOC_Restart(const char *name, int version);
int VELOC_Finalize(int drain);
