/* past.c - opens the driver by the path in DRIVER, and says whether hf_protect_cuda takes its device memory. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "holdfast.h"

int main(void) {
	void *driver = dlopen(getenv("DRIVER"), RTLD_NOW);
	int (*start)(unsigned) = driver != NULL ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;

	if (start == NULL || start(0) != 0 || hf_init(NULL) != HF_OK) {
		printf("no driver, or %s\n", hf_error());
		return 1;
	}
	printf("%s\n", hf_protect_cuda() == HF_OK ? "protected" : hf_error());
	hf_finalize();
	return 0;
}
