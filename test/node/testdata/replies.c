/* replies has the library read what no daemon sends: messages that are right, nearly right and not at all, with
 * descriptors that are missing, too many or too short. It is built with the library's sources and sanitizers.
 * usage: replies ROUNDS SEED DIRECTORY */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client.h"

union message {
    struct hfp_header h;
    struct hfp_welcome welcome;
    struct hfp_number number;
    struct hfp_arena arena;
    struct hfp_word word;
    struct hfp_copy copy;
    struct hfp_done done;
    struct hfp_error error;
    char bytes[HFP_MAX_BYTES];
};

static uint64_t state;

static uint64_t draw(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

/* A number that a field may have, or should not. */
static uint64_t number(void)
{
    static const uint64_t edges[] = {0,    1,          2,          3,           4,         8,      4095,
                                     4096, 4097,       65536,      0xffffffffu, INT32_MAX, 1u << 31, UINT64_MAX,
                                     8192, UINT64_MAX / 5, SIZE_MAX / 2, 0x400000000000u, 16};
    return draw(4) == 0 ? draw(UINT64_MAX) : edges[draw(sizeof edges / sizeof edges[0])];
}

static size_t some_items(struct hfp_copy *m)
{
    uint32_t i;

    m->load = (uint32_t)draw(draw(8) == 0 ? 3 : 2);
    m->n = (uint32_t)draw(4);
    for (i = 0; i < m->n; i++) {
        m->items[i].array = (uint32_t)(draw(8) == 0 ? number() : draw(4)) | (draw(4) == 0 ? HFP_COPY_LATE : 0);
        m->items[i].arena = draw(6) == 0 ? HFP_NO_ARENA : (uint32_t)draw(3);
        m->items[i].offset = draw(3) == 0 ? number() : 0;
        m->items[i].bytes = draw(3) == 0 ? number() : 4096;
    }
    if (draw(16) == 0)
        m->n = (uint32_t)number();
    return sizeof *m + i * sizeof m->items[0];
}

/* Fills in a message but for its header, and returns its length. */
static size_t fill(union message *m, uint16_t type)
{
    switch (type) {
    case HFP_WELCOME:
        m->welcome.page = HFP_PAGE_BYTES;
        return sizeof m->welcome;
    case HFP_EXCHANGE:
    case HFP_SHADOW:
        m->number.value = draw(3) == 0 ? number() : draw(900);
        return sizeof m->number;
    case HFP_ARENA:
        m->arena.id = (uint32_t)draw(3);
        m->arena.flags = (uint32_t)draw(draw(6) == 0 ? 4 : 2);
        m->arena.bytes = draw(3) == 0 ? number() : 4096;
        return sizeof m->arena;
    case HFP_DROP:
        m->word.value = (int32_t)draw(3);
        return sizeof m->word;
    case HFP_COPY:
        return some_items(&m->copy);
    case HFP_DONE:
        m->done.code = (int32_t)draw(3);
        m->done.value = number();
        return sizeof m->done;
    case HFP_ERROR:
        m->error.code = (int32_t)draw(9) - 8;
        m->error.n = (uint32_t)draw(40);
        memset(m->error.text, 'x', m->error.n);
        return sizeof m->error + m->error.n;
    }
    return sizeof m->h + draw(100);
}

static void say(int to)
{
    static union message m;
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(3 * sizeof(int))];
    } control = {.bytes = {0}};
    const uint16_t type = (uint16_t)(draw(20) == 0 ? number() : HFP_WELCOME + draw(HFP_SHADOW - HFP_WELCOME + 1));
    size_t n, want = type == HFP_WELCOME ? 2 : type == HFP_EXCHANGE || type == HFP_ARENA, i;
    int fds[3];
    struct iovec io = {&m, 0};
    struct msghdr msg = {.msg_iov = &io, .msg_iovlen = 1};

    memset(&m, 0, 512);
    n = fill(&m, type);
    m.h = (struct hfp_header){HFP_MAGIC, HFP_VERSION, type, (uint32_t)n, 0};
    if (draw(12) == 0)
        m.bytes[draw(n)] ^= (char)(1 << draw(8));
    io.iov_len = draw(20) == 0 ? draw(n + 1) : draw(200) == 0 ? sizeof m : n;
    if (draw(10) == 0)
        want = draw(4);
    for (i = 0; i < want; i++) {
        fds[i] = memfd_create("replies", MFD_CLOEXEC);
        if (fds[i] < 0 || ftruncate(fds[i], draw(4) == 0 ? (off_t)draw(9000) : 4096) != 0)
            exit(3);
    }
    if (want > 0) {
        struct cmsghdr *c;
        msg.msg_control = &control;
        msg.msg_controllen = CMSG_SPACE(want * sizeof(int));
        c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(want * sizeof(int));
        memcpy(CMSG_DATA(c), fds, want * sizeof(int));
    }
    (void)sendmsg(to, &msg, MSG_DONTWAIT | MSG_NOSIGNAL); /* one of no bytes is the end */
    for (i = 0; i < want; i++)
        close(fds[i]);
}

static int gather(void *all, const void *mine, size_t bytes, void *arg)
{
    int i;

    for (i = 0; i < *(int *)arg; i++)
        memcpy((char *)all + (size_t)i * bytes, mine, bytes);
    return 0;
}

int main(int argc, char **argv)
{
    static double memory[512];
    static char path[4096], names[][8] = {"memory", "stream", "file"};
    struct hf_array arrays[3] = {
        {.name = names[0], .kind = HF_ARRAY, .ptr = memory, .count = 512, .type = HF_DOUBLE},
        {.name = names[1], .kind = HF_STREAM, .type = HF_BYTE},
        {.name = names[2], .kind = HF_FILE, .path = path, .type = HF_BYTE}};
    struct hf_client *c = &hf_the;
    long round, rounds, ends[3] = {0};
    int size = 4;

    if (argc != 4)
        return 2;
    rounds = atol(argv[1]);
    state = strtoull(argv[2], NULL, 10) | 1;
    snprintf(path, sizeof path, "%s/file", argv[3]);
    for (round = 0; round < rounds; round++) {
        struct hfp_number request = {.value = 1};
        int pair[2], code, n;
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
            return 3;
        *c = (struct hf_client){.flags = &hf_armed, .points = &hf_unseen, .stage = HF_READY, .pid = getpid(),
                                .sock = pair[0], .size = size, .allgather = gather, .arg = &size,
                                .arrays = arrays, .narrays = 3};
        for (n = (int)draw(6); n >= 0; n--)
            say(pair[1]);
        shutdown(pair[1], SHUT_WR);
        code = hf_call(c, &request, HFP_POINT, sizeof request, &request.value);
        ends[code >= 0 ? 0 : code == HF_E_PROTOCOL ? 1 : 2]++;
        hf_hang_up(c);
        close(pair[0]);
        close(pair[1]);
    }
    free(arrays[1].ptr);
    printf("replies: %ld done, %ld malformed, %ld errors or ends\n", ends[0], ends[1], ends[2]);
    return ends[0] == 0 || ends[1] == 0;
}
