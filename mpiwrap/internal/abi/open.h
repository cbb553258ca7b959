/* Opening a library: by name at run time, or the one linked in. */
enum { HF_KIND_OPENMPI, HF_KIND_MPICH };

/* Returns the kind, or -1 with the reason in err. */
int hfmpi_open(const char *name, int mapped_only, char *err, int cap);
