/* calls.c - the calls of holdfast.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/membarrier.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client.h"

#define API __attribute__((visibility("default")))

_Atomic uint32_t hf_shut = HFP_GATE_ARMED, hf_open = 0; /* gates of a client that has no page */
_Atomic uint64_t hf_unseen;

struct hf_client hf_the = {.gate = &hf_shut, .points = &hf_unseen, .sock = -1};

static _Thread_local char text[4096] = "no error";

int hf_fail(int code, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return code;
}

API const char *hf_error(void) { return text; }

size_t hf_elem(hf_type type)
{
    static const size_t bytes[] = {0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 8, 16};
    return (size_t)type < sizeof bytes / sizeof bytes[0] ? bytes[type] : 0;
}

/* Whether the connected client may make a call at this stage. */
static int in_turn(const char *call, enum hf_stage from, enum hf_stage to, const char *remedy)
{
    if (hf_the.stage >= from && hf_the.stage <= to)
        return HF_OK;
    return hf_fail(HF_E_ORDER, "%s: %s", call, remedy);
}

API int hf_start(void)
{
    if (hf_the.stage == HF_FINAL)
        return hf_fail(HF_E_ORDER, "hf_start: hf_finalize was called; a program connects once");
    return hf_the.stage == HF_NEW ? hf_connect(&hf_the) : HF_OK;
}

API int hf_init(const hf_config *config)
{
    struct hf_client *c = &hf_the;
    struct hfp_hello hello = {.flags = 0};
    hf_config d = HF_CONFIG_INIT;
    const char *program;
    int code;

    if (config != NULL) {
        if (config->size_of < sizeof d.size_of || config->size_of > sizeof d)
            return hf_fail(HF_E_ARG,
                           "hf_init: size_of is %zu; begin with HF_CONFIG_INIT, and link the "
                           "library of the header's release",
                           config->size_of);
        memcpy(&d, config, config->size_of);
    }
    if ((code = in_turn("hf_init", HF_NEW, HF_CONNECTED, "it was called before; a program connects once")) != HF_OK)
        return code;
    if ((d.rank < 0) != (d.size < 0) || (d.rank >= 0 && d.rank >= d.size))
        return hf_fail(HF_E_ARG, "hf_init: rank %d of %d is none; give both, or neither", d.rank, d.size);
    if (d.rank < 0 && (code = hf_rank_of_environment(&d.rank, &d.size)) != HF_OK)
        return code;
    if ((code = hf_start()) != HF_OK)
        return code;
    c->rank = d.rank;
    c->size = d.size;
    c->allgather = d.allgather;
    c->arg = d.arg;
    program = d.program != NULL ? d.program : program_invocation_short_name;
    hello.rank = d.rank;
    hello.size = d.size;
    hello.n = (uint32_t)strnlen(program, HFP_NAME_BYTES);
    memcpy(hello.text, program, hello.n);
    if (d.allgather != NULL)
        hello.flags |= HFP_HELLO_GATHERS;
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0)
        hello.flags |= HFP_HELLO_MEMBARRIER;
    code = hf_call(c, &hello, HFP_HELLO, offsetof(struct hfp_hello, text) + hello.n, NULL);
    if (code == HF_OK && c->gate == &hf_shut)
        code = hf_fail(HF_E_PROTOCOL,
                       "hf_init: the node daemon sent no pages; use holdfast and libholdfast of one release");
    c->allgather = NULL; /* what it needs may be the caller's alone */
    if (code < 0) {
        hf_hang_up(c);
        c->gate = &hf_shut;
        c->stage = HF_FINAL;
        return code;
    }
    c->stage = HF_READY;
    hf_take_signals(c);
    return HF_OK;
}

/* Finds an array by its name, or makes one. */
static struct hf_array *array_of(struct hf_client *c, const char *name)
{
    struct hf_array *more;
    size_t i;

    for (i = 0; i < c->narrays; i++)
        if (strcmp(c->arrays[i].name, name) == 0)
            return &c->arrays[i];
    if (c->narrays == HFP_MOST_ARRAYS) {
        hf_fail(HF_E_ARG, "hf_protect \"%s\": there are %d arrays already; protect them as one", name, HFP_MOST_ARRAYS);
        return NULL;
    }
    more = realloc(c->arrays, (c->narrays + 1) * sizeof *more);
    if (more != NULL)
        c->arrays = more;
    if (more == NULL || (more[c->narrays].name = strdup(name)) == NULL) {
        hf_fail(HF_E_MEMORY, "hf_protect \"%s\": no memory", name);
        return NULL;
    }
    return &more[c->narrays];
}

API int hf_protect(const char *name, void *ptr, size_t count, hf_type type)
{
    struct hf_client *c = &hf_the;
    struct hfp_protect m = {.type = (uint32_t)type, .count = count};
    struct hf_array *a, was;
    bool fresh;
    size_t n;
    int code;

    if (name == NULL || (n = strnlen(name, HFP_NAME_BYTES + 1)) == 0 || n > HFP_NAME_BYTES)
        return hf_fail(HF_E_ARG, "hf_protect: a name has 1 to %d bytes", HFP_NAME_BYTES);
    if (hf_elem(type) == 0)
        return hf_fail(HF_E_ARG, "hf_protect \"%s\": type %d is none; use an HF_ constant", name, (int)type);
    if ((ptr == NULL && count > 0) || count > SIZE_MAX / 32)
        return hf_fail(HF_E_ARG, "hf_protect \"%s\": %zu elements at %p", name, count, ptr);
    if ((code = in_turn("hf_protect", HF_READY, HF_RESTORED_STAGE, "call it between hf_init and hf_finalize")) != HF_OK)
        return code;
    if ((a = array_of(c, name)) == NULL)
        return HF_E_MEMORY;
    fresh = a == &c->arrays[c->narrays];
    was = *a;
    m.array = (uint32_t)(a - c->arrays);
    m.n = (uint32_t)n;
    memcpy(m.text, name, n);
    code = hf_call(c, &m, HFP_PROTECT, offsetof(struct hfp_protect, text) + n, NULL);
    if (code < 0) {
        if (fresh)
            free(was.name);
        return code;
    }
    *a = (struct hf_array){was.name, ptr, count, type};
    c->narrays += fresh;
    return HF_OK;
}

API int hf_restore(void)
{
    struct hfp_header m;
    int code = in_turn("hf_restore", HF_READY, HF_READY, "call it once, after hf_init and before the first point");

    if (code != HF_OK)
        return code;
    code = hf_call(&hf_the, &m, HFP_RESTORE, sizeof m, NULL);
    if (code >= 0)
        hf_the.stage = HF_RESTORED_STAGE;
    return code;
}

/* What a point's answer means. */
static int stopped(int code)
{
    if (code == HFP_CODE_STOP)
        atomic_store(&hf_the.stopped, true);
    return code;
}

static int may_point(const char *call)
{
    return in_turn(call, HF_RESTORED_STAGE, HF_RESTORED_STAGE, "call it between hf_restore and hf_finalize");
}

/* Counts a point where the daemon can see it. */
static void count_point(struct hf_client *c)
{
    atomic_store_explicit(c->points, ++c->count, memory_order_relaxed);
    if (c->fence)
        atomic_thread_fence(memory_order_seq_cst);
    else
        atomic_signal_fence(memory_order_seq_cst); /* the daemon's membarrier does the rest */
}

static __attribute__((noinline)) int closer_look(struct hf_client *c)
{
    struct hfp_number m = {.value = c->count};
    int code = may_point("hf_point");

    return code != HF_OK ? code : stopped(hf_call(c, &m, HFP_POINT, sizeof m, NULL));
}

API int hf_point(void)
{
    struct hf_client *c = &hf_the;

    count_point(c);
    if (__builtin_expect(atomic_load_explicit(c->gate, memory_order_relaxed) == 0, 1))
        return HF_OK;
    return closer_look(c);
}

API int hf_checkpoint(void)
{
    struct hf_client *c = &hf_the;
    struct hfp_word m = {.value = 0};
    uint64_t entered;
    int code = may_point("hf_checkpoint");

    if (code != HF_OK)
        return code;
    count_point(c);
    entered = c->count;
    while ((code = hf_call(c, &m, HFP_CHECKPOINT, sizeof m, NULL)) == HFP_CODE_AGAIN) {
        count_point(c);
        m.value = 1;
    }
    /* Ranks may have counted one more or not; from here on they are equal again. */
    c->count = entered;
    count_point(c);
    return stopped(code);
}

API int hf_request(int stop)
{
    struct hf_client *c = &hf_the;
    uint64_t set = stop != 0 ? c->stop : c->checkpoint;
    int s;

    for (s = 1; s <= 64; s++)
        if ((set >> (s - 1) & 1) != 0 && s != SIGTERM)
            return hf_send_signal(c, s) == 0 ? HF_OK : HF_E_DAEMON;
    return HF_E_ORDER;
}

API int hf_wait(const char *level)
{
    struct hfp_text m;
    size_t n;
    int code = may_point("hf_wait");

    if (level == NULL || (n = strnlen(level, HFP_NAME_BYTES + 1)) > HFP_NAME_BYTES)
        return hf_fail(HF_E_ARG, "hf_wait: name a level: local, partner, parity or global");
    if (code != HF_OK)
        return code;
    m.n = (uint32_t)n;
    memcpy(m.text, level, n);
    return hf_call(&hf_the, &m, HFP_WAIT, offsetof(struct hfp_text, text) + n, NULL);
}

API int hf_stop_asked(void) { return atomic_load(&hf_the.stopped); }

API int hf_finalize(void)
{
    struct hf_client *c = &hf_the;
    struct hfp_header m;
    size_t i;
    int code = in_turn("hf_finalize", HF_READY, HF_RESTORED_STAGE, "hf_init has not been called, or has failed");

    if (code != HF_OK)
        return code;
    code = hf_call(c, &m, HFP_FINALIZE, sizeof m, NULL);
    if (c->pid != getpid())
        return code;
    hf_give_signals_back(c);
    hf_hang_up(c);
    c->gate = &hf_shut;
    for (i = 0; i < c->narrays; i++)
        free(c->arrays[i].name);
    free(c->arrays);
    c->arrays = NULL;
    c->narrays = 0;
    c->stage = HF_FINAL;
    return code;
}
