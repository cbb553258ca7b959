/* Compares the table with mpi.h; 0 when all is the same, else err says what
 * differs. checked counts the comparisons. */
int hfmpi_check(char *err, int cap, int *checked);
