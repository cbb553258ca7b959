/* Binds one table to a library opened at run time. The including file has
 * defined PFX and HF_SYMBOL_VALUE and included its table. */

#define X(name, params) int (*name) params;
static struct { HF_MPI(X) } PFX(fn);
#undef X
#define P(name) PFX(fn).name

/* K(name) is the constant or handle MPI_name. */
#define K(name) PFX(k_##name)()
#define X(name, value) static inline int PFX(k_##name)(void) { return value; }
HF_CONSTANTS(X)
#undef X
#define X(name, value) static inline void *PFX(k_##name)(void) { return (void *)(intptr_t)(value); }
HF_POINTERS(X)
#undef X
#define X(type, name, value) static inline type PFX(k_##name)(void) { return HF_SYMBOL_VALUE(type, name, value); }
HF_SYMBOLS(X)
#undef X

/* Looks every function up and returns the name of one that is missing, or NULL. */
static const char *PFX(bind_functions)(void *dl)
{
#define X(name, params) \
	if ((*(void **)&PFX(fn).name = dlsym(dl, "MPI_" #name)) == NULL) return "MPI_" #name;
	HF_MPI(X)
#undef X
	return NULL;
}
