/* What dl.c knows of the two tables: each binds itself to an open library and
 * returns the name of what is missing, or NULL. */
const char *hfmpi_openmpi_bind(void *dl);
const char *hfmpi_mpich_bind(void *dl);
