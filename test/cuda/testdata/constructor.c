/* constructor.c - a library that allocates as soon as it is opened. */
void in_constructor(void);

__attribute__((constructor)) static void start(void) { in_constructor(); }
