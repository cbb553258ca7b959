/* isendrecv.inc.h - a send and a receive under one request. */

/* isendrecv_known notes the receive of one. */
static void C(isendrecv_known)(enum hfm_call call, struct hfm_comm *c, MPI_Request request, void *buf, COUNT n,
	MPI_Datatype type, int source, int tag) {
	if (c == NULL || source == MPI_PROC_NULL) {
		return;
	}
	struct hfm_request *r = track(HFM_RECEIVE, call, c, request);
	r->source = source;
	r->tag = tag;
	r->active = true;
	r->buffer = buf;
	r->count = (long)n;
	r->datatype = WORD(type);
	posted(c, source, tag);
}

/* isendrecv_served gives the receive of one its message from the mailbox at once: request is that of the send. */
static int C(isendrecv_served)(struct hfm_mail *m, MPI_Request request, MPI_Comm comm) {
	struct hfm_request *r = request_of(request);
	MPI_Status st;
	r->counted = r->served = true;
	int rc = C(receive_mail)(m, r->buffer, (COUNT)r->count, HANDLE(MPI_Datatype, r->datatype), comm, &st);
	memcpy(r->status, &st, sizeof st);
	return rc;
}

static int C(hfm_Isendrecv)(const void *sendbuf, COUNT sends, MPI_Datatype sendtype, int dest, int sendtag,
	void *recvbuf, COUNT receives, MPI_Datatype recvtype, int source, int recvtag, MPI_Comm comm,
	MPI_Request *request) {
	if (!hfm_enter(HFM_Isendrecv)) {
		return REAL(C(Isendrecv))(
			sendbuf, sends, sendtype, dest, sendtag, recvbuf, receives, recvtype, source, recvtag, comm, request);
	}
	struct hfm_comm *c = comm_of(comm);
	uint64_t *sent = peer(hfm_sent, c, dest);
	struct hfm_mail *m = mail_for(comm, source, recvtag, true);
	count(sent, 1);
	int rc = REAL(C(Isendrecv))(sendbuf, sends, sendtype, dest, sendtag, recvbuf, receives, recvtype,
		m == NULL ? source : MPI_PROC_NULL, recvtag, comm, request);
	if (rc == MPI_SUCCESS) {
		C(isendrecv_known)(HFM_Isendrecv, c, *request, recvbuf, receives, recvtype, source, recvtag);
		rc = m == NULL ? rc : C(isendrecv_served)(m, *request, comm);
	} else {
		count(sent, (uint64_t)-1);
		if (m != NULL) {
			hfm_return_mail(c, m);
		}
	}
	hfm_leave();
	return rc;
}

static int C(hfm_Isendrecv_replace)(void *buf, COUNT n, MPI_Datatype type, int dest, int sendtag, int source,
	int recvtag, MPI_Comm comm, MPI_Request *request) {
	if (!hfm_enter(HFM_Isendrecv_replace)) {
		return REAL(C(Isendrecv_replace))(buf, n, type, dest, sendtag, source, recvtag, comm, request);
	}
	struct hfm_comm *c = comm_of(comm);
	uint64_t *sent = peer(hfm_sent, c, dest);
	struct hfm_mail *m = mail_for(comm, source, recvtag, true), *packed = NULL;
	int rc = MPI_SUCCESS, room = 0, at = 0;
	count(sent, 1);
	if (m == NULL) {
		rc = REAL(C(Isendrecv_replace))(buf, n, type, dest, sendtag, source, recvtag, comm, request);
	} else { /* what is sent stays until the request ends */
		rc = REAL(Pack_size)((int)n, type, comm, &room);
		packed = rc == MPI_SUCCESS ? hfm_need(malloc(sizeof *packed + (size_t)room)) : NULL;
		rc = rc == MPI_SUCCESS ? REAL(Pack)(buf, (int)n, type, packed->data, room, &at, comm) : rc;
		rc = rc == MPI_SUCCESS ? REAL(Isendrecv)(packed->data, at, MPI_PACKED, dest, sendtag, NULL, 0, MPI_PACKED,
									 MPI_PROC_NULL, recvtag, comm, request)
							   : rc;
	}
	if (rc == MPI_SUCCESS) {
		C(isendrecv_known)(HFM_Isendrecv_replace, c, *request, buf, n, type, source, recvtag);
	}
	if (rc == MPI_SUCCESS && m != NULL) {
		request_of(*request)->held = packed;
		rc = C(isendrecv_served)(m, *request, comm);
	} else if (rc != MPI_SUCCESS) {
		count(sent, (uint64_t)-1);
		free(packed);
		if (m != NULL) {
			hfm_return_mail(c, m);
		}
	}
	hfm_leave();
	return rc;
}
