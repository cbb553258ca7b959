/* ended has a loop that is left in its middle, asks for a checkpoint behind its last point, and ends. */
#include <holdfast.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    static int32_t step;
    const int stop = argc > 1 && argv[1][0] == 's';

    if (hf_init(NULL) < 0 || hf_protect("step", &step, 1, HF_INT32) < 0 || hf_restore() < 0) {
        fprintf(stderr, "%s\n", hf_error());
        return 1;
    }
    for (;;) {
        if ((step == 5 ? hf_checkpoint(NULL, 0) : hf_point()) != HF_OK)
            return 1;
        if (++step >= 10)
            break;
    }
    if (hf_rank() == 1)
        hf_request(stop);
    const int code = hf_finalize();
    printf("ended: %d steps, %d\n", step, code);
    return 0;
}
