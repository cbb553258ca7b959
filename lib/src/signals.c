/* signals.c - hands the signals that ask for checkpoints to the daemon. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client.h"

int hf_send_signal(struct hf_client *c, int signal) {
	struct hfp_word m = { { HFP_MAGIC, HFP_VERSION, HFP_SIGNAL, sizeof m, 0 }, signal, 0 };
	int sock = atomic_load(&c->sock);

	if (sock >= 0 && send(sock, &m, sizeof m, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof m) {
		return 0;
	}
	atomic_fetch_or(&c->unsent, UINT64_C(1) << (signal - 1));
	return -1;
}

/* The earlier action, by signal. */
static struct sigaction before[65];

/* Hands the signal to the daemon. A full socket has signals enough in it. The handler of a library is not called: that
 * of LLVM, which OpenCL brings, would end the process. A child after fork also has the handler, but its signals say
 * nothing about the rank: they have their earlier effect. */
static void pass_on(int signal) {
	int e = errno;

	if (hf_the.pid == getpid()) {
		(void)hf_send_signal(&hf_the, signal);
	} else if (sigaction(signal, &before[signal], NULL) == 0) {
		(void)raise(signal); /* blocked until this returns */
	}
	errno = e;
}

/* Whether a handler is the program's: code of the executable, or of Python, which calls the program's. One of another
 * library, such as MPICH's for USR1, gives way. */
static bool programs_own(const struct sigaction *a) {
	union {
		void (*handler)(int);
		void (*action)(int, siginfo_t *, void *);
		void *at;
	} f;
	Dl_info handler, program;

	if ((a->sa_flags & SA_SIGINFO) != 0) {
		f.action = a->sa_sigaction;
	} else {
		f.handler = a->sa_handler;
	}
	return dladdr(f.at, &handler) == 0 || dladdr((void *)(uintptr_t)getauxval(AT_PHDR), &program) == 0 ||
		handler.dli_fbase == program.dli_fbase ||
		(handler.dli_fname != NULL && strstr(handler.dli_fname, "/libpython") != NULL);
}

void hf_take_signals(struct hf_client *c) {
	uint64_t all = c->checkpoint | c->stop;
	int s;

	for (s = 1; s <= 64; s++) {
		struct sigaction ours;
		if ((all >> (s - 1) & 1) == 0 || sigaction(s, NULL, &before[s]) != 0) {
			continue;
		}
		if ((before[s].sa_flags & SA_SIGINFO) != 0 || before[s].sa_handler != SIG_DFL) {
			if (((before[s].sa_flags & SA_SIGINFO) == 0 && before[s].sa_handler == SIG_IGN) ||
				programs_own(&before[s])) {
				continue;
			}
		}
		memset(&ours, 0, sizeof ours);
		ours.sa_handler = pass_on;
		ours.sa_flags = SA_RESTART | SA_ONSTACK;
		sigemptyset(&ours.sa_mask);
		if (sigaction(s, &ours, NULL) == 0) {
			c->signals |= UINT64_C(1) << (s - 1);
		}
	}
}

void hf_give_signals_back(struct hf_client *c) {
	int s;

	for (s = 1; s <= 64; s++) {
		struct sigaction now;
		if ((c->signals >> (s - 1) & 1) != 0 && sigaction(s, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 &&
			now.sa_handler == pass_on) { /* else the program has taken it since */
			(void)sigaction(s, &before[s], NULL);
		}
	}
	c->signals = 0;
}
