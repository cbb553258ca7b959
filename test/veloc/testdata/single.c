/* single is a process by itself, without MPI. usage: single CONFIG ID VALUE TIMES; it adds
 * VALUE so many times to what it has saved, and saves it each time. */
#define VELOC_WITHOUT_MPI
#include <stdio.h>
#include <stdlib.h>

#include "veloc.h"

int main(int argc, char **argv)
{
    long sum = 0;
    int v, times;

    if (argc != 5 || VELOC_Init_single((unsigned)atoi(argv[2]), argv[1]) != VELOC_SUCCESS)
        return 2;
    if (VELOC_Mem_protect(0, &sum, 1, sizeof sum) != VELOC_SUCCESS)
        return 3;
    v = VELOC_Restart_test("sum", 0);
    if (v >= 0 && VELOC_Restart("sum", v) != VELOC_SUCCESS)
        return 4;
    for (times = atoi(argv[4]); times > 0; times--) {
        sum += atol(argv[3]);
        if (VELOC_Checkpoint("sum", ++v) != VELOC_SUCCESS)
            return 5;
    }
    printf("single %s: version %d, sum %ld\n", argv[2], v, sum);
    return VELOC_Finalize(1) != VELOC_SUCCESS;
}
