/* The calls of FTI that the driver makes, for a stand-in that the test builds. */
#include <mpi.h>
#define FTI_SCES 0
#define FTI_NSCS -1
#define FTI_DONE 1
typedef int fti_id_t;
extern MPI_Comm FTI_COMM_WORLD;
extern fti_id_t FTI_CHAR;
int FTI_Init(const char *configFile, MPI_Comm globalComm);
int FTI_Status(void);
int FTI_Protect(int id, void *ptr, long count, fti_id_t type);
int FTI_Checkpoint(int id, int level);
int FTI_Recover(void);
int FTI_Finalize(void);
