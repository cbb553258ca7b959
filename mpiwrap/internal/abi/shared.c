#include <limits.h>

#include "neutral.h"

const struct hfmpi_calls *hfmpi_lib;
int64_t hfmpi_limit = INT_MAX;
int hfmpi_skip_disconnect;
