/* tool.h - the command holdfast, which libholdfast and libholdfast-opencl start. */
#ifndef HF_TOOL_H
#define HF_TOOL_H

#include <limits.h>

/* Its path: HOLDFAST_BIN, else the one that was installed with this library, whose path goes to beside, else the one in
 * PATH. */
const char *hf_tool(char beside[PATH_MAX]);

/* Its environment: that of this program without the variables for only the program: LD_PRELOAD, and the variables of
 * DMTCP, which would take the command into its checkpoints. The caller frees the list; NULL: there is no memory. */
char **hf_tool_environ(void);

#endif
