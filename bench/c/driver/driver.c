/* A program with one rank that holdfast bench c compiles against libholdfast and starts.
 *
 * usage: driver write|restart DIR BYTES RUNS
 *
 * write times, in turn and in each of RUNS runs after one to warm up: memcpy of BYTES, write+fsync of them to a file in
 * DIR, a checkpoint of them, and hf_point with nothing asked. restart, a new start, times hf_restore and memcpy,
 * compares every byte, and takes a checkpoint. Either prints lines "name, tab, seconds", one for each run, and then
 * kills itself: the next start restores its checkpoint. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <holdfast.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 100, POINTS = 20 * 1000 * 1000 };

static char *mem, *back;
static size_t bytes;
static int64_t version;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int check(const char *call, int code)
{
    if (code < 0) {
        fprintf(stderr, "%s: code %d: %s\n", call, code, hf_error());
        exit(3);
    }
    return code;
}

static void fail(const char *what)
{
    perror(what);
    exit(4);
}

/* Fills memory so that every chunk differs from that of every other version. */
static void fill(char *to, int64_t v)
{
    uint64_t z = UINT64_C(88172645463325252) + UINT64_C(1000003) * (uint64_t)v;
    size_t i;

    for (i = 0; i + 8 <= bytes; i += 8) {
        z ^= z << 13;
        z ^= z >> 7;
        z ^= z << 17;
        memcpy(to + i, &z, 8);
    }
}

static double copied(void)
{
    const double begin = now();

    memcpy(back, mem, bytes);
    return now() - begin;
}

static double written(const char *name)
{
    const double begin = now();
    const int f = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    size_t at = 0;

    if (f < 0)
        fail(name);
    while (at < bytes) {
        const ssize_t n = write(f, mem + at, bytes - at > 4 << 20 ? 4 << 20 : bytes - at);
        if (n <= 0)
            fail("write");
        at += (size_t)n;
    }
    if (fsync(f) != 0 || close(f) != 0)
        fail("fsync");
    return now() - begin;
}

static void list(const char *name, const double *v, int n)
{
    int i;

    for (i = 0; i < n; i++)
        printf("%s\t%.12f\n", name, v[i]);
}

static void write_all(const char *dir, int runs)
{
    double copy[MOST], raw[MOST], blocked[MOST], durable[MOST], point[MOST];
    char name[4096];
    int run, i;

    snprintf(name, sizeof name, "%s/raw", dir);
    check("hf_restore", hf_restore());
    for (run = -1; run < runs; run++) {
        const int at = run < 0 ? 0 : run;
        double begin;
        fill(mem, ++version);
        copy[at] = copied();
        raw[at] = written(name);
        unlink(name);
        begin = now();
        check("hf_checkpoint", hf_checkpoint(NULL, 0));
        blocked[at] = now() - begin;
        check("hf_wait", hf_wait("local"));
        durable[at] = now() - begin;
        begin = now();
        for (i = 0; i < POINTS; i++)
            if (hf_point() != HF_OK)
                fail("hf_point");
        point[at] = (now() - begin) / POINTS;
    }
    list("memcpy", copy, runs);
    list("raw", raw, runs);
    list("blocked", blocked, runs);
    list("durable", durable, runs);
    list("point", point, runs);
}

static void restart(void)
{
    double copy[1], restored[1], begin = now();
    int same;

    same = check("hf_restore", hf_restore()) == HF_RESTORED;
    restored[0] = now() - begin;
    copied();
    copy[0] = copied();
    fill(back, version);
    same = same && memcmp(mem, back, bytes) == 0;
    fill(mem, ++version);
    check("hf_checkpoint", hf_checkpoint(NULL, 0));
    check("hf_wait", hf_wait("local"));
    list("memcpy", copy, 1);
    list("restored", restored, same);
}

int main(int argc, char **argv)
{
    const int runs = argc == 5 ? atoi(argv[4]) : 0;

    if (runs < 1 || runs > MOST)
        return 2;
    bytes = (size_t)atoll(argv[3]);
    mem = malloc(bytes);
    back = malloc(bytes);
    if (mem == NULL || back == NULL)
        fail("malloc");
    memset(mem, 1, bytes); /* the program has touched its memory, as one that restarts has */
    memset(back, 2, bytes);
    check("hf_init", hf_init(NULL));
    check("hf_protect", hf_protect("version", &version, 1, HF_INT64));
    check("hf_protect", hf_protect("data", mem, bytes, HF_BYTE));
    if (strcmp(argv[1], "write") == 0)
        write_all(argv[2], runs);
    else
        restart();
    fflush(stdout);
    raise(SIGKILL);
    return 1;
}
