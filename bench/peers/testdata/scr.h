/* The calls of SCR that the driver makes, for a stand-in that the test builds. */
#include <mpi.h>
#define SCR_SUCCESS 0
#define SCR_MAX_FILENAME 1024
#define SCR_FLAG_CHECKPOINT 1
int SCR_Init(void);
int SCR_Finalize(void);
int SCR_Start_output(const char *name, int flags);
int SCR_Route_file(const char *name, char *file);
int SCR_Complete_output(int valid);
int SCR_Have_restart(int *flag, char *name);
int SCR_Start_restart(char *name);
int SCR_Complete_restart(int valid);
