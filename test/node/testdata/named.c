/* named is a program without MPI for tests of checkpoints with a name: arrays, a file and a stream, two names, some
 * of the arrays, restarts in the same process and in another.
 * usage: named write|read DIR */
#define _GNU_SOURCE
#include <holdfast.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CELLS 30000

static uint64_t u[CELLS], v[CELLS];
static char path[4096];
static int rank;

static int check(const char *what, int code)
{
    if (code < 0) {
        fprintf(stderr, "named: %s: code %d: %s\n", what, code, hf_error());
        exit(3);
    }
    return code;
}

static void want(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "named: rank %d: %s\n", rank, what);
        exit(4);
    }
}

#define CHECK(call) check(#call, call)
#define WANT(ok) want(ok, #ok)

/* Sets everything to what it is at a step. */
static void be(uint64_t step)
{
    FILE *f;
    size_t i;

    for (i = 0; i < CELLS; i++) {
        u[i] = step * 1000003u + i + (uint64_t)rank;
        v[i] = step * 7919u - i;
    }
    f = fopen(path, "w");
    want(f != NULL && fprintf(f, "file of rank %d at %" PRIu64 "\n", rank, step) > 0, "write the file");
    if (step % 2 == 0)
        want(fprintf(f, "longer\n") > 0, "write the file");
    want(fclose(f) == 0, "close the file");
    f = hf_fopen("log", "w");
    want(f != NULL && fprintf(f, "log of rank %d at %" PRIu64 "\n", rank, step) > 0, "write the stream");
    want(fclose(f) == 0, "close the stream");
}

static int line_is(FILE *f, const char *words, uint64_t step)
{
    char line[256], expected[256];

    want(f != NULL && fgets(line, sizeof line, f) != NULL, "read a line");
    want(fclose(f) == 0, "close");
    snprintf(expected, sizeof expected, "%s of rank %d at %" PRIu64 "\n", words, rank, step);
    return strcmp(line, expected) == 0;
}

static int is_array(const uint64_t *a, uint64_t factor, uint64_t step, int sign)
{
    size_t i;

    for (i = 0; i < CELLS; i++)
        if (a[i] != (sign > 0 ? step * factor + i + (uint64_t)rank : step * factor - i))
            return 0;
    return 1;
}

#define IS_U(step) is_array(u, 1000003u, step, 1)
#define IS_V(step) is_array(v, 7919u, step, -1)
#define IS_FILE(step) line_is(fopen(path, "r"), "file", step)
#define IS_LOG(step) line_is(hf_fopen("log", "r"), "log", step)

static void protect(void)
{
    CHECK(hf_protect("u", u, CELLS, HF_UINT64));
    CHECK(hf_protect("v", v, CELLS, HF_UINT64));
    CHECK(hf_protect_file("file", path));
    CHECK(hf_protect_stream("log"));
}

/* A global array and a replicated value in a checkpoint with a name: they come back to the same division alone. */
static void shares(int write)
{
    const char *const names[] = {"global", "same"};
    static double memory[6][8];
    const int grid[] = {atoi(getenv("PMI_SIZE")), 1};
    const int64_t size[] = {4 * grid[0], 6};
    int64_t same = 77;
    hf_box box = {{0}, {0}, {0}, {0}, {0}, {0}, {0}, 0}, other;
    int i, k, n = hf_block(2, size, grid, rank, &box);
    size_t count = 0;

    box.low[0] = box.high[0] = box.low[1] = box.high[1] = 1;
    CHECK(hf_protect_global("global", memory, 48, HF_DOUBLE, 2, size, &box, (size_t)n));
    CHECK(hf_protect_replicated("same", &same, 1, HF_INT64));
    if (write) {
        for (i = 0; i < 48; i++)
            memory[i / 8][i % 8] = rank * 100 + i;
        CHECK(hf_checkpoint_some("shares", 1, names, 2));
        CHECK(hf_checkpoint("shares", 2));
    }
    memset(memory, 0, sizeof memory);
    same = 0;
    CHECK(hf_restart_begin("shares", 2));
    WANT(CHECK(hf_saved("global", &count, NULL)) == HF_FOUND && count == 24);
    CHECK(hf_recover(names, 2));
    for (i = 0; i < 6; i++)
        for (k = 0; k < 8; k++)
            WANT(memory[i][k] == (i % 5 == 0 || k % 7 == 0 ? 0 : rank * 100 + 8 * i + k));
    WANT(same == 77);
    other = box;
    other.start[0] = box.start[0] == 0 ? 4 : 0;
    memset(memory, 0, sizeof memory);
    CHECK(hf_protect_global("global", memory, 48, HF_DOUBLE, 2, size, &other, (size_t)n));
    WANT(hf_recover(names, 1) < 0 && strstr(hf_error(), "another division") != NULL && memory[1][1] == 0);
    CHECK(hf_restart_end());
    CHECK(hf_protect_global("global", memory, 48, HF_DOUBLE, 2, size, &box, (size_t)n));
    CHECK(hf_restart_begin("shares", 1));
    CHECK(hf_recover(names, 2));
    WANT(memory[4][6] == rank * 100 + 38);
    CHECK(hf_restart_end());
    CHECK(hf_unprotect("global"));
    CHECK(hf_unprotect("same"));
}

/* A stream that appends does so wherever it stands. */
static void append(void)
{
    char line[32] = "";
    FILE *f = hf_fopen("more", "w");

    WANT(f != NULL && fputs("one ", f) >= 0 && fclose(f) == 0);
    f = hf_fopen("more", "a");
    WANT(f != NULL && fseek(f, 0, SEEK_SET) == 0 && fputs("two", f) >= 0 && fclose(f) == 0);
    f = hf_fopen("more", "r");
    WANT(f != NULL && fgets(line, sizeof line, f) != NULL && strcmp(line, "one two") == 0 && fclose(f) == 0);
    WANT(hf_fopen("more", "r+") == NULL);
    CHECK(hf_unprotect("more"));
}

/* A restored file has the mode of the one that it replaces, behind a link too; the program learns of its open one. */
static void linked(void)
{
    static char name[sizeof path + 8];
    const char *const file[] = {"file"};
    struct stat st;
    FILE *f;

    snprintf(name, sizeof name, "%s.link", path);
    WANT(symlink(path, name) == 0 && chmod(path, 0640) == 0);
    f = fopen(name, "a");
    WANT(f != NULL);
    CHECK(hf_protect_file("file", name));
    CHECK(hf_restart_begin("main", 5));
    CHECK(hf_recover(file, 1));
    CHECK(hf_restart_end());
    WANT(IS_FILE(5) && lstat(name, &st) == 0 && S_ISLNK(st.st_mode) && stat(path, &st) == 0 &&
         (st.st_mode & 07777) == 0640);
    WANT(fclose(f) == 0 && unlink(name) == 0);
    CHECK(hf_protect_file("file", path));
}

static void write_all(void)
{
    const char *const only_v[] = {"v"};
    static double extra[4] = {1, 2, 3, 4};
    int64_t version = -1;
    size_t count = 0;
    hf_type type = HF_BYTE;

    CHECK(hf_keep("main", 3));
    WANT(CHECK(hf_restart_test("main", -1, &version)) == HF_OK);
    WANT(hf_restart("main", 3) < 0 && strstr(hf_error(), "no version 3") != NULL);
    WANT(CHECK(hf_saved("u", NULL, NULL)) == HF_OK); /* the job has no checkpoints without a name */
    WANT(hf_keep("main", 1) == HF_E_ARG);
    WANT(hf_checkpoint("a/b", 1) == HF_E_ARG && hf_checkpoint("main", -1) == HF_E_ARG);
    WANT(hf_protect("holdfast.version", u, 1, HF_UINT64) == HF_E_ARG);
    protect();
    be(3);
    CHECK(hf_checkpoint("main", 3));
    be(5);
    CHECK(hf_checkpoint("main", 5));
    CHECK(hf_checkpoint_some("other_1", 0, only_v, 1));
    CHECK(hf_protect("extra", extra, 4, HF_DOUBLE));
    be(8);
    CHECK(hf_checkpoint("main", 8));
    CHECK(hf_wait(NULL));
    WANT(CHECK(hf_test(NULL)) == HF_FOUND);
    be(9);

    /* Restart in the same process. */
    WANT(CHECK(hf_restart_test("main", 7, &version)) == HF_FOUND && version == 5);
    WANT(CHECK(hf_restart_test("main", 2, &version)) == HF_OK);
    WANT(CHECK(hf_restart_test("main", -1, &version)) == HF_FOUND && version == 8);
    CHECK(hf_restart_begin("main", 5));
    WANT(hf_checkpoint("main", 10) == HF_E_ORDER);
    WANT(CHECK(hf_saved("u", &count, &type)) == HF_FOUND && count == CELLS && type == HF_UINT64);
    WANT(CHECK(hf_saved("extra", &count, &type)) == HF_OK);
    CHECK(hf_recover(only_v, 1));
    WANT(IS_V(5) && IS_U(9) && IS_LOG(9) && IS_FILE(9));
    CHECK(hf_recover(NULL, 0));
    WANT(IS_V(5) && IS_U(5) && IS_LOG(5) && IS_FILE(5));
    CHECK(hf_restart_end());
    WANT(CHECK(hf_restart("other_1", 0)) == HF_RESTORED && IS_V(5));
    extra[2] = 0;
    WANT(CHECK(hf_restart("main", 8)) == HF_RESTORED && extra[2] == 3 && IS_U(8));

    /* An array that has gone, one that has shrunk, one of another type. */
    append();
    linked();
    CHECK(hf_unprotect("extra"));
    WANT(hf_restart("main", 8) < 0 && strstr(hf_error(), "\"extra\"") != NULL);
    CHECK(hf_protect("u", u, CELLS - 1, HF_UINT64));
    WANT(hf_restart("main", 5) < 0 && strstr(hf_error(), "elements") != NULL);
    WANT(hf_protect("u", u, CELLS, HF_DOUBLE) < 0);
    CHECK(hf_protect("u", u, CELLS, HF_UINT64));

    shares(1);
    be(11);
    CHECK(hf_checkpoint("main", 11));
    CHECK(hf_wait("local"));
    printf("rank %d has written\n", rank);
    fflush(stdout);
    if (rank == 0)
        pause(); /* until it is killed */
}

static void read_all(void)
{
    int64_t version = -1;

    CHECK(hf_keep("main", 3));
    protect();
    be(1);
    WANT(CHECK(hf_restart_test("main", -1, &version)) == HF_FOUND && version == 11);
    CHECK(hf_restart("main", version));
    WANT(IS_U(11) && IS_V(11) && IS_LOG(11) && IS_FILE(11));
    WANT(CHECK(hf_restart_test("other_1", -1, &version)) == HF_FOUND && version == 0);
    be(12);
    shares(0);
    CHECK(hf_restart("other_1", 0));
    WANT(IS_V(5) && IS_U(12) && IS_LOG(12) && IS_FILE(12));
    for (version = 12; version < 18; version++) {
        CHECK(hf_checkpoint("main", version));
        CHECK(hf_wait(NULL));
    }
    /* Three are kept, and those that they refer to. */
    WANT(CHECK(hf_restart_test("main", 13, &version)) == HF_OK || version != 13);
    WANT(CHECK(hf_restart_test("main", -1, &version)) == HF_FOUND && version == 17);
    CHECK(hf_finalize());
    printf("rank %d has read\n", rank);
}

int main(int argc, char **argv)
{
    const char *mode = argc == 3 ? argv[1] : "";

    rank = atoi(getenv("PMI_RANK"));
    snprintf(path, sizeof path, "%s/file.%d", argv[argc - 1], rank);
    CHECK(hf_init(NULL));
    if (strcmp(mode, "write") == 0)
        write_all();
    else
        read_all();
    return 0;
}
