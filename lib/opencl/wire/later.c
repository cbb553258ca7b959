/* Threads of the library, and the one that runs the program's call-backs, which may call the API. */
#include "wire.h"

#include <signal.h>

struct job {
	struct job *next;
	void (*call)(void *);
	void *data;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t work;
	struct job *first, **last;
} jobs = { .lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER, .last = &jobs.first };

static void *run_jobs(void *unused) {
	(void)unused;
	for (;;) {
		pthread_mutex_lock(&jobs.lock);
		while (jobs.first == NULL) {
			pthread_cond_wait(&jobs.work, &jobs.lock);
		}
		struct job *j = jobs.first;
		jobs.first = j->next;
		if (jobs.first == NULL) {
			jobs.last = &jobs.first;
		}
		pthread_mutex_unlock(&jobs.lock);
		j->call(j->data);
		free(j);
	}
	return NULL;
}

/* hfcl_call_later runs a call-back on the library's thread; without memory for that, here. */
void hfcl_call_later(void (*call)(void *), void *data) {
	struct job *j = malloc(sizeof *j);
	if (j == NULL) {
		call(data);
		return;
	}
	*j = (struct job){ NULL, call, data };
	pthread_mutex_lock(&jobs.lock);
	*jobs.last = j;
	jobs.last = &j->next;
	pthread_cond_signal(&jobs.work);
	pthread_mutex_unlock(&jobs.lock);
}

bool hfcl_thread(void *(*run)(void *), void *data) {
	pthread_t t;
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	bool ok = pthread_create(&t, NULL, run, data) == 0;
	if (ok) {
		pthread_detach(t);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return ok;
}

bool hfcl_run_later(void) { return hfcl_thread(run_jobs, NULL); }
