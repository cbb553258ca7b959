/* MPICH's ABI, shared by Intel MPI, MVAPICH and Cray MPICH: handles are
 * integers with fixed values. mpi_mpich builds check every line. */
#define HF_NAME "MPICH"

/* type, MPI name, value */
#define HF_SYMBOLS(X) \
	X(MPI_Comm, COMM_WORLD, 0x44000000) \
	X(MPI_Comm, COMM_SELF, 0x44000001) \
	X(MPI_Comm, COMM_NULL, 0x04000000) \
	X(MPI_Request, REQUEST_NULL, 0x2c000000) \
	X(MPI_Message, MESSAGE_NULL, 0x2c000000) \
	X(MPI_Message, MESSAGE_NO_PROC, 0x6c000000) \
	X(MPI_Info, INFO_NULL, 0x1c000000) \
	X(MPI_Errhandler, ERRORS_RETURN, 0x54000001) \
	X(MPI_Datatype, BYTE, 0x4c00010d) \
	X(MPI_Datatype, INT8_T, 0x4c000137) \
	X(MPI_Datatype, INT16_T, 0x4c000238) \
	X(MPI_Datatype, INT32_T, 0x4c000439) \
	X(MPI_Datatype, INT64_T, 0x4c00083a) \
	X(MPI_Datatype, UINT8_T, 0x4c00013b) \
	X(MPI_Datatype, UINT16_T, 0x4c00023c) \
	X(MPI_Datatype, UINT32_T, 0x4c00043d) \
	X(MPI_Datatype, UINT64_T, 0x4c00083e) \
	X(MPI_Datatype, FLOAT, 0x4c00040a) \
	X(MPI_Datatype, DOUBLE, 0x4c00080b) \
	X(MPI_Datatype, C_FLOAT_COMPLEX, 0x4c000840) \
	X(MPI_Datatype, C_DOUBLE_COMPLEX, 0x4c001041) \
	X(MPI_Op, MAX, 0x58000001) \
	X(MPI_Op, MIN, 0x58000002) \
	X(MPI_Op, SUM, 0x58000003) \
	X(MPI_Op, PROD, 0x58000004) \
	X(MPI_Op, LAND, 0x58000005) \
	X(MPI_Op, BAND, 0x58000006) \
	X(MPI_Op, LOR, 0x58000007) \
	X(MPI_Op, BOR, 0x58000008) \
	X(MPI_Op, LXOR, 0x58000009) \
	X(MPI_Op, BXOR, 0x5800000a) \
	X(MPI_Op, REPLACE, 0x5800000d) \
	X(MPI_Op, NO_OP, 0x5800000e)

#define HF_CONSTANTS(X) \
	X(ANY_SOURCE, -2) X(PROC_NULL, -1) X(ANY_TAG, -1) X(UNDEFINED, -32766) \
	X(TAG_UB, 0x64400001) X(COMM_TYPE_SHARED, 1) X(MAX_ERROR_STRING, 512) X(MAX_LIBRARY_VERSION_STRING, 8192) \
	X(THREAD_SERIALIZED, 2) X(THREAD_MULTIPLE, 3) X(LOCK_EXCLUSIVE, 234) X(LOCK_SHARED, 235) \
	X(ERR_BUFFER, 1) X(ERR_COUNT, 2) X(ERR_TYPE, 3) X(ERR_TAG, 4) X(ERR_COMM, 5) X(ERR_RANK, 6) \
	X(ERR_REQUEST, 19) X(ERR_ROOT, 7) X(ERR_GROUP, 8) X(ERR_OP, 9) X(ERR_ARG, 12) X(ERR_TRUNCATE, 14) \
	X(ERR_INTERN, 16) X(ERR_WIN, 45) X(ERR_RMA_CONFLICT, 49) \
	X(ERR_RMA_SYNC, 50) X(ERR_RMA_RANGE, 55)

#define HF_POINTERS(X) X(IN_PLACE, -1)

#define HF_TEST_FROM 65
#define HF_CODE_CLASS(code) ((code) & 0x7f)
#define HF_STATUS_BYTES(st) \
	((int64_t)((uint64_t)(uint32_t)(st).count_lo | (uint64_t)((uint32_t)(st).count_hi_and_cancelled >> 1) << 32))
#define HF_STATUS_CANCELLED(st) ((st).count_hi_and_cancelled & 1)

#ifndef HF_DIRECT
typedef int MPI_Comm, MPI_Request, MPI_Message, MPI_Info, MPI_Errhandler, MPI_Datatype, MPI_Op, MPI_Group, MPI_Win;
typedef long MPI_Aint;
#endif
typedef struct {
	int count_lo, count_hi_and_cancelled, MPI_SOURCE, MPI_TAG, MPI_ERROR;
} hfmpi_table_status;
