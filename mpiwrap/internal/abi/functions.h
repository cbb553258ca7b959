/* The MPI functions that body.h calls, with their types. */
#define HF_MPI(X) \
	X(Init_thread, (int *, char ***, int, int *)) \
	X(Initialized, (int *)) \
	X(Query_thread, (int *)) \
	X(Finalize, (void)) \
	X(Abort, (MPI_Comm, int)) \
	X(Get_library_version, (char *, int *)) \
	X(Error_class, (int, int *)) \
	X(Error_string, (int, char *, int *)) \
	X(Comm_get_attr, (MPI_Comm, int, void *, int *)) \
	X(Comm_set_errhandler, (MPI_Comm, MPI_Errhandler)) \
	X(Comm_rank, (MPI_Comm, int *)) \
	X(Comm_size, (MPI_Comm, int *)) \
	X(Comm_dup, (MPI_Comm, MPI_Comm *)) \
	X(Comm_split, (MPI_Comm, int, int, MPI_Comm *)) \
	X(Comm_split_type, (MPI_Comm, int, int, MPI_Info, MPI_Comm *)) \
	X(Comm_create, (MPI_Comm, MPI_Group, MPI_Comm *)) \
	X(Comm_create_group, (MPI_Comm, MPI_Group, int, MPI_Comm *)) \
	X(Comm_free, (MPI_Comm *)) \
	X(Comm_group, (MPI_Comm, MPI_Group *)) \
	X(Group_incl, (MPI_Group, int, const int *, MPI_Group *)) \
	X(Group_free, (MPI_Group *)) \
	X(Type_contiguous, (int, MPI_Datatype, MPI_Datatype *)) \
	X(Type_create_struct, (int, const int *, const MPI_Aint *, const MPI_Datatype *, MPI_Datatype *)) \
	X(Type_commit, (MPI_Datatype *)) \
	X(Type_free, (MPI_Datatype *)) \
	X(Send, (const void *, int, MPI_Datatype, int, int, MPI_Comm)) \
	X(Ssend, (const void *, int, MPI_Datatype, int, int, MPI_Comm)) \
	X(Recv, (void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Status *)) \
	X(Sendrecv, (const void *, int, MPI_Datatype, int, int, void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Status *)) \
	X(Isend, (const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *)) \
	X(Issend, (const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *)) \
	X(Irecv, (void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *)) \
	X(Send_init, (const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *)) \
	X(Ssend_init, (const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *)) \
	X(Recv_init, (void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *)) \
	X(Start, (MPI_Request *)) \
	X(Probe, (int, int, MPI_Comm, MPI_Status *)) \
	X(Iprobe, (int, int, MPI_Comm, int *, MPI_Status *)) \
	X(Mprobe, (int, int, MPI_Comm, MPI_Message *, MPI_Status *)) \
	X(Improbe, (int, int, MPI_Comm, int *, MPI_Message *, MPI_Status *)) \
	X(Mrecv, (void *, int, MPI_Datatype, MPI_Message *, MPI_Status *)) \
	X(Imrecv, (void *, int, MPI_Datatype, MPI_Message *, MPI_Request *)) \
	X(Wait, (MPI_Request *, MPI_Status *)) \
	X(Test, (MPI_Request *, int *, MPI_Status *)) \
	X(Waitany, (int, MPI_Request *, int *, MPI_Status *)) \
	X(Cancel, (MPI_Request *)) \
	X(Request_free, (MPI_Request *)) \
	X(Barrier, (MPI_Comm)) \
	X(Bcast, (void *, int, MPI_Datatype, int, MPI_Comm)) \
	X(Gather, (const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm)) \
	X(Gatherv, (const void *, int, MPI_Datatype, void *, const int *, const int *, MPI_Datatype, int, MPI_Comm)) \
	X(Scatter, (const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm)) \
	X(Scatterv, (const void *, const int *, const int *, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm)) \
	X(Allgather, (const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm)) \
	X(Allgatherv, (const void *, int, MPI_Datatype, void *, const int *, const int *, MPI_Datatype, MPI_Comm)) \
	X(Alltoall, (const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm)) \
	X(Alltoallv, (const void *, const int *, const int *, MPI_Datatype, void *, const int *, const int *, MPI_Datatype, MPI_Comm)) \
	X(Reduce, (const void *, void *, int, MPI_Datatype, MPI_Op, int, MPI_Comm)) \
	X(Allreduce, (const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm)) \
	X(Reduce_scatter_block, (const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm)) \
	X(Reduce_scatter, (const void *, void *, const int *, MPI_Datatype, MPI_Op, MPI_Comm)) \
	X(Scan, (const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm)) \
	X(Exscan, (const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm)) \
	X(Ibarrier, (MPI_Comm, MPI_Request *)) \
	X(Ibcast, (void *, int, MPI_Datatype, int, MPI_Comm, MPI_Request *)) \
	X(Igather, (const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm, MPI_Request *)) \
	X(Igatherv, (const void *, int, MPI_Datatype, void *, const int *, const int *, MPI_Datatype, int, MPI_Comm, MPI_Request *)) \
	X(Iscatter, (const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm, MPI_Request *)) \
	X(Iscatterv, (const void *, const int *, const int *, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm, MPI_Request *)) \
	X(Iallgather, (const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm, MPI_Request *)) \
	X(Iallgatherv, (const void *, int, MPI_Datatype, void *, const int *, const int *, MPI_Datatype, MPI_Comm, MPI_Request *)) \
	X(Ialltoall, (const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm, MPI_Request *)) \
	X(Ialltoallv, (const void *, const int *, const int *, MPI_Datatype, void *, const int *, const int *, MPI_Datatype, MPI_Comm, MPI_Request *)) \
	X(Ireduce, (const void *, void *, int, MPI_Datatype, MPI_Op, int, MPI_Comm, MPI_Request *)) \
	X(Iallreduce, (const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *)) \
	X(Ireduce_scatter_block, (const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *)) \
	X(Ireduce_scatter, (const void *, void *, const int *, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *)) \
	X(Iscan, (const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *)) \
	X(Iexscan, (const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *)) \
	X(Win_allocate, (MPI_Aint, int, MPI_Info, MPI_Comm, void *, MPI_Win *)) \
	X(Win_free, (MPI_Win *)) \
	X(Win_set_errhandler, (MPI_Win, MPI_Errhandler)) \
	X(Win_fence, (int, MPI_Win)) \
	X(Win_lock, (int, int, int, MPI_Win)) \
	X(Win_unlock, (int, MPI_Win)) \
	X(Win_lock_all, (int, MPI_Win)) \
	X(Win_unlock_all, (MPI_Win)) \
	X(Win_flush, (int, MPI_Win)) \
	X(Win_flush_local, (int, MPI_Win)) \
	X(Win_flush_all, (MPI_Win)) \
	X(Win_sync, (MPI_Win)) \
	X(Put, (const void *, int, MPI_Datatype, int, MPI_Aint, int, MPI_Datatype, MPI_Win)) \
	X(Get, (void *, int, MPI_Datatype, int, MPI_Aint, int, MPI_Datatype, MPI_Win)) \
	X(Accumulate, (const void *, int, MPI_Datatype, int, MPI_Aint, int, MPI_Datatype, MPI_Op, MPI_Win)) \
	X(Get_accumulate, (const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Aint, int, MPI_Datatype, MPI_Op, MPI_Win)) \
	X(Fetch_and_op, (const void *, void *, MPI_Datatype, int, MPI_Aint, MPI_Op, MPI_Win)) \
	X(Compare_and_swap, (const void *, const void *, void *, MPI_Datatype, int, MPI_Aint, MPI_Win))
