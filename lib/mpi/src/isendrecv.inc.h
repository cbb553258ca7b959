/* isendrecv.inc.h - a send and a receive under one request. */

/* send_packed sends the present contents of buf. */
static int C(send_packed)(const void *buf, COUNT n, MPI_Datatype type, int dest, int tag, MPI_Comm comm) {
	char *copy;
	int bytes, rc = C(pack)(buf, n, type, comm, offsetof(struct packed, data), &copy, &bytes);
	if (rc != MPI_SUCCESS) {
		return rc;
	}
	struct packed *p = (struct packed *)(void *)copy;
	if (dest == MPI_PROC_NULL ||
		(rc = REAL(Isend)(p->data, bytes, MPI_PACKED, dest, tag, comm, &p->request)) != MPI_SUCCESS) {
		free(p);
		return rc;
	}
	hfm_lock();
	end_packed(false);
	p->next = packed_sends;
	packed_sends = p;
	hfm_unlock();
	return rc;
}

/* isendrecv_ends notes the receive of one that was started. m: the mailbox serves it, and the sent data was packed.
 * Then the message comes by way of the loop, as that of MPI_Irecv does. */
static int C(isendrecv_ends)(enum hfm_call call, struct hfm_mail *m, void *buf, COUNT n, MPI_Datatype type, int source,
	int tag, MPI_Comm comm, MPI_Request *request, int rc) {
	if (rc == MPI_SUCCESS && m != NULL) {
		int missed;
		rc = C(by_loop)(m, buf, n, type, NULL, request, &missed);
	} else if (rc != MPI_SUCCESS) {
		if (m != NULL) {
			hfm_return_mail(comm_of(comm), m);
		}
		hfm_leave();
		return rc;
	}
	rc = C(received)(call, m, buf, n, type, source, tag, comm, request, rc);
	hfm_leave();
	return rc;
}

static int C(hfm_Isendrecv)(const void *sendbuf, COUNT sends, MPI_Datatype sendtype, int dest, int sendtag,
	void *recvbuf, COUNT n, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Request *request) {
	if (!hfm_enter(HFM_Isendrecv)) {
		return REAL(C(Isendrecv))(
			sendbuf, sends, sendtype, dest, sendtag, recvbuf, n, type, source, tag, comm, request);
	}
	uint64_t *sent = peer(hfm_sent, comm_of(comm), dest);
	struct hfm_mail *m = mail_for(comm, source, tag, true);
	int rc = m != NULL ? C(may_receive)(recvbuf, n, type, source, tag, comm) : MPI_SUCCESS;
	count(sent, 1);
	sends_lock();
	if (m == NULL) {
		rc = REAL(C(Isendrecv))(sendbuf, sends, sendtype, dest, sendtag, recvbuf, n, type, source, tag, comm, request);
	} else if (rc == MPI_SUCCESS) {
		rc = C(send_packed)(sendbuf, sends, sendtype, dest, sendtag, comm);
	}
	sent_one(comm_of(comm), dest, sendtag, sent, rc);
	sends_unlock();
	return C(isendrecv_ends)(HFM_Isendrecv, m, recvbuf, n, type, source, tag, comm, request, rc);
}

static int C(hfm_Isendrecv_replace)(void *buf, COUNT n, MPI_Datatype type, int dest, int sendtag, int source, int tag,
	MPI_Comm comm, MPI_Request *request) {
	if (!hfm_enter(HFM_Isendrecv_replace)) {
		return REAL(C(Isendrecv_replace))(buf, n, type, dest, sendtag, source, tag, comm, request);
	}
	uint64_t *sent = peer(hfm_sent, comm_of(comm), dest);
	struct hfm_mail *m = mail_for(comm, source, tag, true);
	int rc = m != NULL ? C(may_receive)(buf, n, type, source, tag, comm) : MPI_SUCCESS;
	count(sent, 1);
	sends_lock();
	if (m == NULL) {
		rc = REAL(C(Isendrecv_replace))(buf, n, type, dest, sendtag, source, tag, comm, request);
	} else if (rc == MPI_SUCCESS) {
		rc = C(send_packed)(buf, n, type, dest, sendtag, comm);
	}
	sent_one(comm_of(comm), dest, sendtag, sent, rc);
	sends_unlock();
	return C(isendrecv_ends)(HFM_Isendrecv_replace, m, buf, n, type, source, tag, comm, request, rc);
}
