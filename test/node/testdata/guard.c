/* guard is a program without MPI for tests that goes on when its daemon dies, and checks that it is told: ranks of the
 * environment, all on one node, whose state depends on every step.
 * usage: guard STEPS FILE MICROSECONDS DIR
 * The test makes DIR/dead.N when the N-th daemon is dead. A rank that has passed two points since, and does not know,
 * ends with code 9. While there is DIR/slow steps take their time. */
#define _GNU_SOURCE
#include <holdfast.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CELLS 30000 /* more than fit the table of a shard */
#define GRID 900

static uint64_t cells[CELLS], grid[GRID];
static int32_t step;

static void check(int code)
{
    if (code >= 0)
        return;
    fprintf(stderr, "guard: code %d: %s\n", code, hf_error());
    exit(code == HF_E_DAEMON ? 4 : 3);
}

/* What a call may say that takes checkpoints where the program asks for them: the daemon has just died. */
static void bear(int code)
{
    if (code != HF_E_DAEMON && code != HF_E_FAILED)
        check(code);
}

int main(int argc, char **argv)
{
    const int steps = atoi(argv[1]), rank = atoi(getenv("PMI_RANK")), size = atoi(getenv("PMI_SIZE"));
    const int64_t all[] = {GRID * (int64_t)size};
    const int places[] = {size};
    int told = 0, dead = 0, unknowing = 0, code = 0, i;
    char name[4096];
    hf_box box;
    FILE *f;

    if (argc != 5)
        return 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (i = 0; i < CELLS; i++)
        cells[i] = (uint64_t)(rank + 1) * 1000003u + (uint64_t)i;
    printf("rank %d starts\n", rank);
    check(hf_init(NULL));
    check(hf_protect_replicated("step", &step, 1, HF_INT32));
    check(hf_protect("cells", cells, CELLS, HF_UINT64));
    memset(&box, 0, sizeof box);
    check(hf_block(1, all, places, rank, &box));
    check(hf_protect_global("grid", grid, GRID, HF_UINT64, 1, all, &box, 1));
    printf("rank %d restores\n", rank);
    check(hf_restore());
    printf("rank %d begins at step %d\n", rank, step);
    for (; step < steps; step++) {
        snprintf(name, sizeof name, "%s/dead.%d", argv[4], dead + 1);
        while (access(name, F_OK) == 0) /* it stays */
            snprintf(name, sizeof name, "%s/dead.%d", argv[4], ++dead + 1);
        code = hf_point();
        if (code == HF_STOP)
            break;
        if (code == HF_E_DAEMON)
            printf("rank %d is told of %d at step %d: %s\n", rank, ++told, step, hf_error());
        else
            check(code);
        unknowing = told < dead ? unknowing + 1 : 0;
        if (unknowing > 1) {
            fprintf(stderr, "guard: rank %d does not know of death %d at step %d\n", rank, dead, step);
            return 9;
        }
        if (step % 97 == 96)
            bear(code = hf_checkpoint(NULL, 0));
        if (code == HF_STOP)
            break;
        if (step % 131 == 130)
            bear(hf_checkpoint("side", step));
        if (step % 211 == 210)
            bear(hf_wait("local"));
        for (i = 0; i < CELLS; i++)
            cells[i] = cells[i] * 6364136223846793005u + (uint64_t)step;
        for (i = 0; i < GRID; i++)
            grid[i] += cells[i] >> 7;
        snprintf(name, sizeof name, "%s/slow", argv[4]);
        if (access(name, F_OK) == 0)
            usleep((useconds_t)atoi(argv[3]));
    }
    if (code != HF_STOP) {
        snprintf(name, sizeof name, "%s.%d", argv[2], rank);
        f = fopen(name, "wb");
        if (f == NULL || fwrite(cells, sizeof cells, 1, f) != 1 || fwrite(grid, sizeof grid, 1, f) != 1 ||
            fclose(f) != 0)
            return 5;
    }
    printf("rank %d finalizes at step %d\n", rank, step);
    code = hf_finalize();
    if (code == HF_E_DAEMON)
        printf("rank %d is told in hf_finalize: %s\n", rank, hf_error());
    else
        check(code);
    return 0;
}
