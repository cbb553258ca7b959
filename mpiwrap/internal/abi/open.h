/* Opening a library: by name at run time, or the one linked in. */
enum { HF_KIND_OPENMPI, HF_KIND_MPICH };

/* Returns the kind, or -1 with the reason in err. */
int hfmpi_open(const char *name, int mapped_only, char *err, int cap);

/* The opened library, for calls that not all have; NULL, of one that is linked in, looks in the whole process. */
extern void *hfmpi_handle;

/* Whether the library says that it takes addresses of CUDA memory. MPI has been initialised. */
int hfmpi_takes_cuda(void);

/* dl.c's view of the two tables: each binds itself to an open library and returns the name of a missing function, or
 * NULL. */
const char *hfmpi_openmpi_bind(void *dl);
const char *hfmpi_mpich_bind(void *dl);
