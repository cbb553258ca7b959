/* calls makes the calls of veloc.h in the orders that programs use, right and wrong, and compares what they return.
 * usage: calls CONFIG */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "veloc.h"

static int rank, bad;

#define IS(call, want)                                                                                                 \
    do {                                                                                                               \
        int got_ = (call);                                                                                             \
        if (got_ != (want)) {                                                                                          \
            fprintf(stderr, "calls: rank %d, line %d: %s is %d, want %d\n", rank, __LINE__, #call, got_, (want));      \
            bad++;                                                                                                     \
        }                                                                                                              \
    } while (0)
#define OK(call) IS(call, VELOC_SUCCESS)
#define FAILS(call) IS(call, VELOC_FAILURE)
#define TRUE(what) IS(!(what), 0)

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    TRUE(f != NULL && fputs(text, f) >= 0 && fclose(f) == 0);
}

static void reads(const char *path, const char *want)
{
    char text[64] = "";
    FILE *f = fopen(path, "r");

    TRUE(f != NULL && fgets(text, sizeof text, f) != NULL && fclose(f) == 0);
    TRUE(strcmp(text, want) == 0);
}

/* Versions that jump, repeat and go back; limits of the test. */
static void versions(void)
{
    int x = 100 + rank, y = -rank;

    OK(VELOC_Mem_protect(0, &x, 1, sizeof x));
    OK(VELOC_Mem_protect(7, &y, 1, sizeof y));
    FAILS(VELOC_Restart_test("v", 0));
    FAILS(VELOC_Restart("v", 3));
    OK(VELOC_Checkpoint("v", 0));
    IS(VELOC_Restart_test("v", 0), 0);
    x = 200 + rank;
    OK(VELOC_Checkpoint("v", 1000));
    x = 300 + rank;
    OK(VELOC_Checkpoint("v", 7));
    IS(VELOC_Restart_test("v", 0), 1000);
    IS(VELOC_Restart_test("v", 1000), 1000);
    IS(VELOC_Restart_test("v", 999), 7);
    IS(VELOC_Restart_test("v", 6), 0);
    FAILS(VELOC_Restart_test("v", -1));
    FAILS(VELOC_Restart_test("w", 0));
    FAILS(VELOC_Restart_test("a b", 0));
    x = 0;
    OK(VELOC_Restart("v", 7));
    IS(x, 300 + rank);
    IS(y, -rank);
    OK(VELOC_Restart("v", 0));
    IS(x, 100 + rank);
    x = 400 + rank;
    OK(VELOC_Checkpoint("v", 7)); /* in place of the one before */
    x = 0;
    OK(VELOC_Restart("v", 7));
    IS(x, 400 + rank);
    FAILS(VELOC_Restart("v", 8));
    FAILS(VELOC_Restart("v", -1));
    OK(VELOC_Checkpoint_wait());
    OK(VELOC_Checkpoint_finished());
    OK(VELOC_Mem_unprotect(7));
    FAILS(VELOC_Mem_unprotect(7));
    FAILS(VELOC_Restart("v", 7)); /* which has region 7 */
    OK(VELOC_Mem_clear());
}

/* Calls that come in the wrong order, and arguments that are wrong, change nothing. */
static void orders(void)
{
    int x = 1, small = 0;
    char name[VELOC_MAX_NAME];

    OK(VELOC_Mem_clear());
    FAILS(VELOC_Checkpoint_mem());
    FAILS(VELOC_Checkpoint_end(1));
    FAILS(VELOC_Recover_mem());
    FAILS(VELOC_Restart_end(1));
    FAILS(VELOC_Checkpoint_begin("a/b", 1));
    FAILS(VELOC_Checkpoint_begin("", 1));
    FAILS(VELOC_Checkpoint_begin(NULL, 1));
    FAILS(VELOC_Checkpoint_begin("o", -1));
    memset(name, 'o', 201);
    name[201] = 0;
    FAILS(VELOC_Checkpoint_begin(name, 1));
    name[200] = 0;
    OK(VELOC_Mem_protect(1, &x, 1, sizeof x));
    OK(VELOC_Checkpoint(name, 2147483647));
    IS(VELOC_Restart_test(name, 0), 2147483647);
    OK(VELOC_Mem_clear());
    FAILS(VELOC_Mem_protect(1, NULL, 4, 4));
    FAILS(VELOC_Mem_protect(1, &x, (size_t)-1, 8));
    OK(VELOC_Mem_protect(1, NULL, 0, 8)); /* a region of no bytes */
    OK(VELOC_Mem_protect(-3, &x, 1, sizeof x));
    OK(VELOC_Checkpoint_begin("o", 1));
    FAILS(VELOC_Checkpoint_begin("o", 2));
    FAILS(VELOC_Restart_begin("o", 1));
    FAILS(VELOC_Checkpoint_wait());
    FAILS(VELOC_Checkpoint_finished());
    OK(VELOC_Checkpoint_mem());
    x = 2; /* what was saved is what was there */
    OK(VELOC_Checkpoint_end(1));
    OK(VELOC_Restart("o", 1));
    IS(x, 1);
    OK(VELOC_Checkpoint_begin("o", 2));
    OK(VELOC_Checkpoint_mem());
    FAILS(VELOC_Checkpoint_end(rank != 0)); /* one rank has failed: it counts for none */
    IS(VELOC_Restart_test("o", 0), 1);
    OK(VELOC_Checkpoint_begin("o", 3));
    FAILS(VELOC_Checkpoint_end(1)); /* of nothing */
    OK(VELOC_Checkpoint_begin("o", 4));
    OK(VELOC_Route_file("x", name));
    FAILS(VELOC_Checkpoint_end(1)); /* of a file that was not written */
    IS(VELOC_Restart_test("o", 0), 1);
    OK(VELOC_Mem_protect(-3, &small, 1, 1));
    FAILS(VELOC_Restart("o", 1)); /* too small */
    IS(small, 0);
    OK(VELOC_Mem_clear());
    FAILS(VELOC_Restart("o", 1)); /* not protected */
}

static void selective(void)
{
    long a[4] = {1, 2, 3, 4}, b[100], all[200];
    int some[] = {1, 3}, unknown[] = {1, 5}, i;
    char c = 'c';

    for (i = 0; i < 100; i++)
        b[i] = i * (rank + 1);
    OK(VELOC_Mem_protect(1, a, 4, sizeof a[0]));
    OK(VELOC_Mem_protect(2, b, 100, sizeof b[0]));
    OK(VELOC_Mem_protect(3, &c, 1, 1));
    OK(VELOC_Checkpoint_begin("some", 1));
    FAILS(VELOC_Checkpoint_selective(VELOC_CKPT_SOME, unknown, 2));
    FAILS(VELOC_Checkpoint_selective(9, some, 2));
    OK(VELOC_Checkpoint_selective(VELOC_CKPT_SOME, some, 2));
    OK(VELOC_Checkpoint_end(1));
    OK(VELOC_Checkpoint_begin("rest", 1));
    OK(VELOC_Checkpoint_selective(VELOC_CKPT_REST, some, 2));
    OK(VELOC_Checkpoint_end(1));
    OK(VELOC_Checkpoint("all", 1));
    memset(a, 0, sizeof a);
    memset(b, 0, sizeof b);
    c = 0;
    OK(VELOC_Restart_begin("some", 1));
    IS(VELOC_Recover_size(1), (int)sizeof a);
    IS(VELOC_Recover_size(2), -1);
    OK(VELOC_Recover_selective(VELOC_RECOVER_SOME, some, 1));
    IS((int)a[3], 4);
    IS(c, 0);
    OK(VELOC_Recover_selective(VELOC_RECOVER_REST, some, 1));
    IS(c, 'c');
    OK(VELOC_Restart_end(1));
    OK(VELOC_Restart("rest", 1));
    IS((int)b[99], 99 * (rank + 1));
    /* A region that has grown is asked for its size first. */
    OK(VELOC_Mem_unprotect(2));
    memset(all, 0x55, sizeof all);
    OK(VELOC_Restart_begin("all", 1));
    IS(VELOC_Recover_size(2), (int)sizeof b);
    OK(VELOC_Mem_protect(2, all, 200, sizeof all[0]));
    OK(VELOC_Recover_mem());
    OK(VELOC_Restart_end(1));
    IS((int)all[99], 99 * (rank + 1));
    TRUE(all[100] == 0x5555555555555555L);
    OK(VELOC_Mem_protect(2, all, 50, sizeof all[0])); /* again, smaller */
    OK(VELOC_Checkpoint("all", 2));
    OK(VELOC_Restart_begin("all", 2));
    IS(VELOC_Recover_size(2), (int)(50 * sizeof all[0]));
    OK(VELOC_Restart_end(1));
    OK(VELOC_Mem_clear());
}

/* Regions of a checkpoint's own name come before those without. */
static void groups(void)
{
    int plain = 1, own = 2;

    OK(VELOC_Mem_protect(0, &plain, 1, sizeof plain));
    OK(VELOC_Region_protect(0, &own, 1, sizeof own, "own"));
    OK(VELOC_Checkpoint("own", 1));
    OK(VELOC_Checkpoint("plain", 1));
    plain = own = 0;
    OK(VELOC_Restart("own", 1));
    IS(plain, 0);
    IS(own, 2);
    OK(VELOC_Restart("plain", 1));
    IS(plain, 1);
    OK(VELOC_Region_unprotect(0, "own"));
    FAILS(VELOC_Region_unprotect(0, "own"));
    OK(VELOC_Region_clear("own"));
    OK(VELOC_Restart("own", 1)); /* into the one without a name */
    IS(plain, 2);
    OK(VELOC_Mem_clear());
}

static void files(void)
{
    char name[VELOC_MAX_NAME], again[VELOC_MAX_NAME];
    int x = 5;

    OK(VELOC_Checkpoint_begin("f", 1));
    OK(VELOC_Route_file("/absolute/dir/f.dat", name));
    write_file(name, "one");
    OK(VELOC_Checkpoint_end(1));
    OK(VELOC_Checkpoint_begin("f", 2));
    OK(VELOC_Route_file("", name));
    write_file(name, "two");
    OK(VELOC_Checkpoint_end(1));
    OK(VELOC_Checkpoint_wait());
    OK(VELOC_Checkpoint_begin("f", 2)); /* the same again, with nothing written */
    OK(VELOC_Route_file("", name));
    FAILS(VELOC_Checkpoint_end(1));
    OK(VELOC_Cleanup("f"));
    TRUE(access(name, F_OK) != 0);
    OK(VELOC_Restart_begin("f", 1));
    OK(VELOC_Route_file("g.dat", again));
    reads(again, "one");
    FAILS(VELOC_Recover_selective(VELOC_RECOVER_SOME, &x, 1));
    OK(VELOC_Restart_end(1));
    OK(VELOC_Restart_begin("f", 2));
    reads(name, "two");
    OK(VELOC_Restart_end(1));
    /* Several files, asked for in another order, by any name if there is but one. */
    OK(VELOC_Checkpoint_begin("f", 3));
    OK(VELOC_Route_file("mesh", name));
    write_file(name, "mesh");
    OK(VELOC_Route_file("field", again));
    TRUE(strcmp(name, again) != 0);
    FAILS(VELOC_Checkpoint_end(1)); /* of one that was not written */
    OK(VELOC_Checkpoint_begin("f", 3));
    OK(VELOC_Route_file("mesh", name));
    write_file(name, "mesh 3");
    OK(VELOC_Route_file("field", again));
    write_file(again, "field 3");
    OK(VELOC_Route_file("mesh", name));
    OK(VELOC_Checkpoint_end(1));
    OK(VELOC_Cleanup("f"));
    TRUE(access(again, F_OK) != 0);
    OK(VELOC_Restart_begin("f", 3));
    OK(VELOC_Route_file("field", again));
    reads(again, "field 3");
    OK(VELOC_Route_file("mesh", name));
    reads(name, "mesh 3");
    FAILS(VELOC_Route_file("mess", name));
    OK(VELOC_Restart_end(1));
    OK(VELOC_Restart_begin("f", 2));
    OK(VELOC_Route_file("field", again));
    reads(again, "two");
    OK(VELOC_Restart_end(1));
    /* A file and memory together. */
    OK(VELOC_Mem_protect(0, &x, 1, sizeof x));
    OK(VELOC_Checkpoint_begin("both.1_", 3));
    OK(VELOC_Checkpoint_mem());
    OK(VELOC_Route_file("f", name));
    write_file(name, "three");
    OK(VELOC_Checkpoint_end(1));
    OK(VELOC_Cleanup("both.1_"));
    x = 0;
    OK(VELOC_Restart("both.1_", 3));
    IS(x, 5);
    reads(name, "three");
    OK(VELOC_Mem_clear());
}

int main(int argc, char **argv)
{
    int size;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    FAILS(VELOC_Checkpoint("v", 1));
    FAILS(VELOC_Finalize(0));
    FAILS(VELOC_Init(MPI_COMM_WORLD, "/nonexistent/veloc.cfg"));
    FAILS(VELOC_Init(MPI_COMM_NULL, argv[1]));
    OK(VELOC_Init(MPI_COMM_WORLD, argv[1]));
    if (bad == 0) {
        FAILS(VELOC_Init(MPI_COMM_WORLD, argv[1]));
        versions();
        orders();
        selective();
        groups();
        files();
        OK(VELOC_Finalize(1));
        OK(VELOC_Init(MPI_COMM_WORLD, argv[1])); /* and once more */
        IS(VELOC_Restart_test("v", 0), 1000);
        OK(VELOC_Finalize(0));
        FAILS(VELOC_Finalize(0));
    }
    MPI_Finalize();
    FAILS(VELOC_Init(MPI_COMM_WORLD, argv[1]));
    if (bad == 0 && rank == 0)
        printf("calls: all as they should be, %d ranks\n", size);
    return bad != 0;
}
