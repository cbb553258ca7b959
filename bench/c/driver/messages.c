/* A program with one rank whose calls of MPI pass libholdfast-mpi, which is preloaded.
 *
 * usage: messages RUNS
 *
 * It times messages to itself and a collective, in turn through the library and by the MPI library's own functions, in
 * blocks, and prints for each of RUNS runs lines "name, tab, seconds" of the quickest block: of a call without the
 * library, and what the library adds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BLOCKS = 1000, CALLS = 300, CASES = 3 };

#define CALLED(name) __typeof__(MPI_##name) *name
static struct functions {
    CALLED(Isend);
    CALLED(Irecv);
    CALLED(Send);
    CALLED(Recv);
    CALLED(Wait);
    CALLED(Allreduce);
} through = {MPI_Isend, MPI_Irecv, MPI_Send, MPI_Recv, MPI_Wait, MPI_Allreduce}, own;

/* The library of MPI is the object that has PMPI_Init itself, and is not the preloaded one. */
static int find(struct dl_phdr_info *info, size_t size, void *out)
{
    const char *base = strrchr(info->dlpi_name, '/');
    const int is_mpi = base != NULL && strncmp(base, "/libmpi", 7) == 0;
    void *lib = is_mpi ? dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    void *init = lib != NULL ? dlsym(lib, "PMPI_Init") : NULL;
    Dl_info from;

    (void)size;
    if (init != NULL && dladdr(init, &from) != 0 && strcmp(from.dli_fname, info->dlpi_name) == 0)
        *(void **)out = lib;
    return *(void **)out != NULL;
}

static void *own_function(void *lib, const char *name)
{
    void *f = dlsym(lib, name);

    if (f == NULL || f == dlsym(RTLD_DEFAULT, name)) {
        fprintf(stderr, "%s does not pass libholdfast-mpi\n", name);
        exit(2);
    }
    return f;
}

static double block(const struct functions *f, int which)
{
    struct timespec begin, end;
    double x = 1, y;
    MPI_Request r;

    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < CALLS; i++) {
        switch (which) {
        case 0:
            f->Isend(&x, 1, MPI_DOUBLE, 0, 1, MPI_COMM_WORLD, &r);
            f->Recv(&y, 1, MPI_DOUBLE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            f->Wait(&r, MPI_STATUS_IGNORE);
            break;
        case 1:
            f->Irecv(&y, 1, MPI_DOUBLE, 0, 1, MPI_COMM_WORLD, &r);
            f->Send(&x, 1, MPI_DOUBLE, 0, 1, MPI_COMM_WORLD);
            f->Wait(&r, MPI_STATUS_IGNORE);
            break;
        default:
            f->Allreduce(&x, &y, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    return ((double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec)) / CALLS;
}

int main(int argc, char **argv)
{
    static const char *const names[CASES] = {"isend", "irecv", "allreduce"};
    const int runs = argc > 1 ? atoi(argv[1]) : 1;
    void *lib = NULL;

    MPI_Init(&argc, &argv);
    dl_iterate_phdr(find, &lib);
    own.Isend = (__typeof__(own.Isend))own_function(lib, "PMPI_Isend");
    own.Irecv = (__typeof__(own.Irecv))own_function(lib, "PMPI_Irecv");
    own.Send = (__typeof__(own.Send))own_function(lib, "PMPI_Send");
    own.Recv = (__typeof__(own.Recv))own_function(lib, "PMPI_Recv");
    own.Wait = (__typeof__(own.Wait))own_function(lib, "PMPI_Wait");
    own.Allreduce = (__typeof__(own.Allreduce))own_function(lib, "PMPI_Allreduce");
    for (int run = 0; run < runs; run++) {
        for (int which = 0; which < CASES; which++) {
            double with = 1, without = 1, t;

            for (int i = 0; i < BLOCKS; i++) {
                with = (t = block(&through, which)) < with ? t : with;
                without = (t = block(&own, which)) < without ? t : without;
            }
            printf("%s\t%.12f\n%s with the library\t%.12f\n", names[which], without, names[which], with);
        }
    }
    MPI_Finalize();
    return 0;
}
