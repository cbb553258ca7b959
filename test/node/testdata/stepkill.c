/* stepkill runs a program up to its first raise(SIGTRAP), then instruction by instruction, and kills it with SIGKILL
 * before the N-th. If a second raise(SIGTRAP) comes sooner, the program goes on undisturbed.
 * usage: stepkill N PROGRAM ARGUMENTS
 * Writes "stepkill: COUNT instructions" or "stepkill: killed before instruction N" to standard error, and leaves
 * with the program's exit code, 137 when it was killed. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t child;

static void give_up(const char *what)
{
    fprintf(stderr, "stepkill: %s: %s\n", what, strerror(errno));
    if (child > 0)
        kill(child, SIGKILL);
    exit(120);
}

/* Waits for the next stop; leaves when the program has ended. Returns the signal that stopped it. */
static int next_stop(siginfo_t *info)
{
    int status;

    if (waitpid(child, &status, 0) != child)
        give_up("wait");
    if (WIFEXITED(status))
        exit(WEXITSTATUS(status));
    if (WIFSIGNALED(status))
        exit(128 + WTERMSIG(status));
    if (ptrace(PTRACE_GETSIGINFO, child, NULL, info) != 0)
        memset(info, 0, sizeof *info); /* it has been killed meanwhile */
    return WSTOPSIG(status);
}

int main(int argc, char **argv)
{
    long most = argc > 2 ? atol(argv[1]) : 0, steps = 0;
    siginfo_t info;
    int sig;

    if (argc < 3)
        return 2;
    child = fork();
    if (child < 0)
        give_up("fork");
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            _exit(121);
        execv(argv[2], argv + 2);
        _exit(122);
    }
    next_stop(&info); /* of exec */
    if (ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_EXITKILL) != 0)
        give_up("set options");
    for (sig = 0;;) {
        if (ptrace(PTRACE_CONT, child, NULL, sig) != 0 && errno != ESRCH)
            give_up("continue");
        sig = next_stop(&info);
        if (sig == SIGTRAP && info.si_code == SI_TKILL)
            break;
    }
    for (sig = 0; steps < most; steps++) {
        if (ptrace(PTRACE_SINGLESTEP, child, NULL, sig) != 0 && errno != ESRCH)
            give_up("step");
        sig = next_stop(&info);
        if (sig == SIGTRAP && info.si_code == SI_TKILL) {
            fprintf(stderr, "stepkill: %ld instructions\n", steps);
            if (ptrace(PTRACE_DETACH, child, NULL, 0) != 0 && errno != ESRCH)
                give_up("detach");
            waitpid(child, &sig, 0);
            return WIFEXITED(sig) ? WEXITSTATUS(sig) : 128 + WTERMSIG(sig);
        }
        if (sig == SIGTRAP)
            sig = 0; /* of the step */
    }
    fprintf(stderr, "stepkill: killed before instruction %ld\n", steps);
    kill(child, SIGKILL);
    waitpid(child, &sig, 0);
    return 137;
}
