/* loads opens libholdfast at run time, connects, closes the library, and gets the signal that the library has taken.
 * usage: loads LIBRARY */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <holdfast.h>
#include <signal.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *lib = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*init)(const hf_config *), (*restore)(void), (*finalize)(void);

    if (lib == NULL)
        return 2;
    *(void **)&init = dlsym(lib, "hf_init");
    *(void **)&restore = dlsym(lib, "hf_restore");
    *(void **)&finalize = dlsym(lib, "hf_finalize");
    if (init == NULL || restore == NULL || finalize == NULL || init(NULL) != HF_OK || restore() != HF_OK)
        return 3;
    dlclose(lib);
    raise(SIGUSR1); /* its handler must still be there */
    printf("computes on\n");
    return finalize() == HF_OK ? 0 : 4;
}
