/* handler is a program whose handler of USR1 lies in a library, built from this file with LIBRARY.
 * It says who got the signal: 1 if the handler did. */
#include <holdfast.h>
#include <signal.h>
#include <stdio.h>

#ifdef LIBRARY
int handled;

static void count(int s) { handled += s != 0; }

void take(int s) { signal(s, count); }
#else
extern int handled;
void take(int s);

int main(void)
{
    take(SIGUSR1);
    if (hf_init(NULL) < 0 || hf_restore() < 0 || raise(SIGUSR1) != 0 || hf_finalize() < 0) {
        fprintf(stderr, "handler: %s\n", hf_error());
        return 1;
    }
    printf("handler: got %d\n", handled);
    return 0;
}
#endif
