/* walk is a program without MPI for tests: ranks of the environment, all on one node, whose
 * state depends on every step.
 * usage: walk STEPS FILE MILLISECONDS [checkpoint-at STEP | own-handler | fork | no-finalize | stop-at STEP |
 *             kill-at STEP | scribble FILE | pin FILE | trap-restore STEP | trap-checkpoint STEP | trap-wait STEP |
 *             trap-fpe STEP]
 * kill-at takes a checkpoint in a run from the beginning and kills the rank as soon as the call returns.
 * scribble has rank 1 write over all that its checkpoints were copied to, and kills it, once there is a FILE,
 * which it removes. pin does the same, but leaves pages of that memory in a pipe of a process that lives until
 * there is a FILE.go, as a driver has pages of a process that has ended. trap-... takes a checkpoint STEP steps
 * after it has begun, and every ten steps after that, and ends after the third.
 * If TRAP is in the environment it raises SIGTRAP before and after the restore, or the first checkpoint or
 * wait. With OUTLIVES it goes on when its daemon has died. CELLS is how many cells are protected. SLOW is a file:
 * once it is not there any more, steps take no time. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <fenv.h>
#include <holdfast.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ARENA "memfd:holdfast-arena"

#define CELLS 30000 /* more than fit the table of a shard */

static uint64_t cells[CELLS];
static volatile sig_atomic_t handled;

static void fpe(int s)
{
    (void)s;
    _exit(6);
}

static void count(int s) { handled += s != 0; }

static void scribble(void *from, size_t n, int fd)
{
    (void)fd;
    memset(from, 0x5a, n);
}

static void pin(void *from, size_t n, int fd)
{
    struct iovec page = {from, 1};

    if (n == 0 || vmsplice(fd, &page, 1, 0) != 1)
        _exit(9);
}

/* Calls f with the memory that is shared with the daemon for captures. */
static void each_arena(void (*f)(void *from, size_t n, int fd), int fd)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];

    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        uintptr_t from, to;
        if (strstr(line, ARENA) != NULL && sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &from, &to) == 2)
            f((void *)from, to - from, fd);
    }
    if (maps != NULL)
        fclose(maps);
}

/* Starts a process that holds the pages until there is FILE.go. */
static void leave_pinned(const char *file)
{
    int ends[2];

    if (pipe(ends) != 0)
        _exit(9);
    each_arena(pin, ends[1]);
    if (fork() == 0) {
        int null = open("/dev/null", O_RDWR);
        if (setsid() < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0)
            _exit(9);
        execl("/bin/sh", "sh", "-c", "until [ -e \"$0.go\" ]; do sleep 0.1; done", file, (char *)NULL);
        _exit(9);
    }
}

static int traps;

static void trap(int now)
{
    if (now && traps)
        raise(SIGTRAP);
}

static int check(int code)
{
    if (code < 0) {
        fprintf(stderr, "walk: code %d: %s\n", code, hf_error());
        exit(3);
    }
    return code;
}

/* Whether a child of a process that has only called hf_start is told that it is none of the ranks. */
static int is_told(void)
{
    pid_t child;
    int status;

    check(hf_start());
    child = fork();
    if (child == 0)
        _exit(hf_init(NULL) == HF_E_ORDER ? 0 : 1);
    return waitpid(child, &status, 0) == child && status == 0;
}

/* Whether a signal ends a child as it would without the library, which has taken the rank's. */
static int dies_alone(int signal)
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        raise(signal);
        _exit(0);
    }
    return waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == signal;
}

int main(int argc, char **argv)
{
    int32_t step = 0;
    float few[3] = {0, 1, 2};
    const char *mode = argc > 4 ? argv[4] : "", *slow = getenv("SLOW");
    int steps = atoi(argv[1]), rank = atoi(getenv("PMI_RANK")), code = 0, begin, cells_used = CELLS, i;
    long ms = atol(argv[3]);
    char name[4096];
    FILE *f;

    traps = getenv("TRAP") != NULL;
    if (strcmp(mode, "trap-fpe") == 0) {
        feenableexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW);
        signal(SIGFPE, fpe);
    }
    if (strcmp(mode, "own-handler") == 0)
        signal(SIGUSR1, count);
    for (i = 0; i < CELLS; i++)
        cells[i] = (uint64_t)(rank + 1) * 1000003u + (uint64_t)i;
    if (strcmp(mode, "fork") == 0 && !is_told())
        return 7;
    check(hf_init(NULL));
    check(hf_protect("step", &step, 1, HF_INT32));
    if (getenv("CELLS") != NULL)
        cells_used = atoi(getenv("CELLS"));
    check(hf_protect("cells", cells, (size_t)cells_used, HF_UINT64));
    check(hf_protect("few", few, 3, HF_FLOAT));
    trap(strcmp(mode, "trap-restore") == 0);
    if (hf_point() != HF_E_ORDER) /* it would count on this rank alone */
        return 1;
    check(hf_restore());
    trap(strcmp(mode, "trap-restore") == 0);
    begin = step;
    printf("rank %d begins at step %d\n", rank, step);
    fflush(stdout);
    if (strcmp(mode, "fork") == 0) {
        pid_t child = fork();
        int status = 0;
        if (child == 0)
            _exit(hf_point() == HF_E_ORDER && hf_wait("local") == HF_E_ORDER && hf_request(1) == HF_E_ORDER ? 0 : 1);
        if (waitpid(child, &status, 0) != child || status != 0 || system("true") != 0)
            return 4;
        if (!dies_alone(SIGTERM) || !dies_alone(SIGUSR1))
            return 8;
    }
    for (; step < steps; step++) {
        code = hf_point();
        if (code == HF_E_DAEMON && getenv("OUTLIVES") != NULL)
            code = HF_OK;
        if (check(code) == HF_STOP)
            break;
        if (strcmp(mode, "checkpoint-at") == 0 && step == atoi(argv[5])) {
            check(hf_checkpoint(NULL, 0));
            check(hf_wait("local"));
            printf("rank %d is durable\n", rank);
            fflush(stdout);
        }
        if (strcmp(mode, "kill-at") == 0 && begin == 0 && step == atoi(argv[5])) {
            check(hf_checkpoint(NULL, 0));
            raise(SIGKILL);
        }
        if (strcmp(mode, "scribble") == 0 && rank == 1 && unlink(argv[5]) == 0) {
            each_arena(scribble, -1);
            raise(SIGKILL);
        }
        if (strcmp(mode, "pin") == 0 && rank == 1 && unlink(argv[5]) == 0) {
            leave_pinned(argv[5]);
            raise(SIGKILL);
        }
        if (strncmp(mode, "trap-", 5) == 0 && argc > 5 && step >= begin + atoi(argv[5]) &&
            (step - begin - atoi(argv[5])) % 10 == 0) {
            int first = step == begin + atoi(argv[5]);
            if (step > begin + atoi(argv[5]) + 20)
                break;
            trap(first && strcmp(mode, "trap-checkpoint") == 0);
            check(hf_checkpoint(NULL, 0));
            trap(first && strcmp(mode, "trap-checkpoint") == 0);
            trap(first && strcmp(mode, "trap-wait") == 0);
            check(hf_wait("global"));
            trap(first && strcmp(mode, "trap-wait") == 0);
        }
        if (strcmp(mode, "stop-at") == 0 && step == atoi(argv[5]) && rank == 0)
            check(hf_request(1));
        for (i = 0; i < cells_used; i++)
            cells[i] = cells[i] * 6364136223846793005u + (uint64_t)step;
        few[step % 3] += 0.5f;
        if (ms > 0 && (slow == NULL || access(slow, F_OK) == 0)) {
            struct timespec t = {ms / 1000, ms % 1000 * 1000000};
            while (nanosleep(&t, &t) != 0)
                continue;
        }
    }
    if (strcmp(mode, "no-finalize") == 0)
        return 0;
    if (code != HF_STOP) {
        snprintf(name, sizeof name, "%s.%d", argv[2], rank);
        f = fopen(name, "wb");
        if (f == NULL || fwrite(cells, sizeof cells, 1, f) != 1 || fwrite(few, sizeof few, 1, f) != 1 || fclose(f) != 0)
            return 5;
    }
    check(hf_finalize());
    printf("rank %d ends at step %d, handled %d\n", rank, step, (int)handled);
    return code == HF_STOP ? 75 : 0;
}
