/* Entry points of extensions, which headers of the API declare as types alone. */
#ifndef HFCL_ABSENT_H
#define HFCL_ABSENT_H
#include "hfcl.h"
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include <CL/cl_egl.h>
#include <CL/cl_gl.h>
#pragma GCC diagnostic pop

#endif
