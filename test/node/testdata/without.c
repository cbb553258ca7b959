/* without asks for everything that a program without checkpoints can ask for, and says which answers are wrong. */
#include <holdfast.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static int bad;

static void want(int line, const char *call, int got, int wanted)
{
    if (got == wanted)
        return;
    printf("without: line %d: %s returned %d, want %d: %s\n", line, call, got, wanted, hf_error());
    bad = 1;
}

#define WANT(call, wanted) want(__LINE__, #call, call, wanted)

int main(void)
{
    int32_t step = 0, other = 0;
    int64_t version = -7;
    size_t count = 0;
    char line[20] = "";
    FILE *f;

    WANT(hf_elastic(), HF_OK);
    WANT(hf_init(NULL), HF_OK);
    WANT(hf_protect("step", &step, 1, HF_INT32), HF_OK);
    WANT(hf_protect_replicated("other", &other, 1, HF_INT32), HF_OK);
    WANT(hf_protect("", &step, 1, HF_INT32), HF_E_ARG);
    WANT(hf_saved("step", &count, NULL), HF_OK);
    WANT(hf_restart_test("n", -1, &version), HF_OK);
    WANT(hf_point(), HF_E_ORDER);
    WANT(hf_restore(), HF_OK);
    WANT(hf_restore(), HF_E_ORDER);
    if ((f = hf_fopen("text", "w")) == NULL || fputs("some text", f) < 0 || fclose(f) != 0 ||
        (f = hf_fopen("text", "r")) == NULL || fgets(line, sizeof line, f) == NULL || fclose(f) != 0 ||
        strcmp(line, "some text") != 0)
        WANT(-1, 0);
    for (; step < 10; step++) {
        WANT(hf_point(), HF_OK);
        WANT(hf_checkpoint(NULL, 0), HF_OK);
        WANT(hf_checkpoint("n", step), HF_OK);
        WANT(hf_request(0), HF_OK);
        raise(SIGUSR1);
    }
    WANT(hf_wait(NULL), HF_OK);
    WANT(hf_wait("global"), HF_OK);
    WANT(hf_test(NULL), HF_FOUND);
    WANT(hf_restart_test("n", -1, &version), HF_OK);
    WANT(hf_restart("n", 3), HF_E_FAILED);
    if (strstr(hf_error(), "nothing to restart from") == NULL)
        WANT(-2, 0);
    WANT(hf_request(1), HF_E_FAILED);
    WANT(hf_stop_asked(), 0);
    WANT(hf_unprotect("other"), HF_OK);
    WANT(hf_finalize(), HF_OK);
    if (version != -7 || count != 0 || step != 10)
        WANT(-3, 0);
    printf("without: %s\n", bad ? "wrong" : "as it should");
    return bad;
}
