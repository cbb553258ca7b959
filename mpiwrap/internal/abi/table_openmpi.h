/* Open MPI's ABI, 4.x and 5.x: handles are pointers, predefined ones the
 * addresses of objects in the library. mpi_openmpi builds check every line. */
#define HF_NAME "Open MPI"

/* type, MPI name, symbol */
#define HF_SYMBOLS(X) \
	X(MPI_Comm, COMM_WORLD, ompi_mpi_comm_world) \
	X(MPI_Comm, COMM_SELF, ompi_mpi_comm_self) \
	X(MPI_Comm, COMM_NULL, ompi_mpi_comm_null) \
	X(MPI_Request, REQUEST_NULL, ompi_request_null) \
	X(MPI_Message, MESSAGE_NULL, ompi_message_null) \
	X(MPI_Message, MESSAGE_NO_PROC, ompi_message_no_proc) \
	X(MPI_Info, INFO_NULL, ompi_mpi_info_null) \
	X(MPI_Errhandler, ERRORS_RETURN, ompi_mpi_errors_return) \
	X(MPI_Datatype, BYTE, ompi_mpi_byte) \
	X(MPI_Datatype, INT8_T, ompi_mpi_int8_t) \
	X(MPI_Datatype, INT16_T, ompi_mpi_int16_t) \
	X(MPI_Datatype, INT32_T, ompi_mpi_int32_t) \
	X(MPI_Datatype, INT64_T, ompi_mpi_int64_t) \
	X(MPI_Datatype, UINT8_T, ompi_mpi_uint8_t) \
	X(MPI_Datatype, UINT16_T, ompi_mpi_uint16_t) \
	X(MPI_Datatype, UINT32_T, ompi_mpi_uint32_t) \
	X(MPI_Datatype, UINT64_T, ompi_mpi_uint64_t) \
	X(MPI_Datatype, FLOAT, ompi_mpi_float) \
	X(MPI_Datatype, DOUBLE, ompi_mpi_double) \
	X(MPI_Datatype, C_FLOAT_COMPLEX, ompi_mpi_c_float_complex) \
	X(MPI_Datatype, C_DOUBLE_COMPLEX, ompi_mpi_c_double_complex) \
	X(MPI_Op, SUM, ompi_mpi_op_sum) \
	X(MPI_Op, PROD, ompi_mpi_op_prod) \
	X(MPI_Op, MAX, ompi_mpi_op_max) \
	X(MPI_Op, MIN, ompi_mpi_op_min) \
	X(MPI_Op, LAND, ompi_mpi_op_land) \
	X(MPI_Op, BAND, ompi_mpi_op_band) \
	X(MPI_Op, LOR, ompi_mpi_op_lor) \
	X(MPI_Op, BOR, ompi_mpi_op_bor) \
	X(MPI_Op, LXOR, ompi_mpi_op_lxor) \
	X(MPI_Op, BXOR, ompi_mpi_op_bxor) \
	X(MPI_Op, REPLACE, ompi_mpi_op_replace) \
	X(MPI_Op, NO_OP, ompi_mpi_op_no_op)

#define HF_CONSTANTS(X) \
	X(ANY_SOURCE, -1) X(PROC_NULL, -2) X(ANY_TAG, -1) X(UNDEFINED, -32766) \
	X(TAG_UB, 0) X(COMM_TYPE_SHARED, 0) X(MAX_ERROR_STRING, 256) X(MAX_LIBRARY_VERSION_STRING, 256) \
	X(THREAD_SERIALIZED, 2) X(THREAD_MULTIPLE, 3) X(LOCK_EXCLUSIVE, 1) X(LOCK_SHARED, 2) \
	X(ERR_BUFFER, 1) X(ERR_COUNT, 2) X(ERR_TYPE, 3) X(ERR_TAG, 4) X(ERR_COMM, 5) X(ERR_RANK, 6) \
	X(ERR_REQUEST, 7) X(ERR_ROOT, 8) X(ERR_GROUP, 9) X(ERR_OP, 10) X(ERR_ARG, 13) X(ERR_TRUNCATE, 15) \
	X(ERR_INTERN, 17) X(ERR_WIN, 53) X(ERR_RMA_CONFLICT, 46) \
	X(ERR_RMA_SYNC, 47) X(ERR_RMA_RANGE, 68)

#define HF_POINTERS(X) X(IN_PLACE, 1)

#define HF_TEST_FROM 0
#define HF_CODE_CLASS(code) (code)
#define HF_STATUS_BYTES(st) ((int64_t)(st)._ucount)
#define HF_STATUS_CANCELLED(st) ((st)._cancelled != 0)

#ifndef HF_DIRECT
typedef struct hfmpi_ompi_comm *MPI_Comm;
typedef struct hfmpi_ompi_request *MPI_Request;
typedef struct hfmpi_ompi_message *MPI_Message;
typedef struct hfmpi_ompi_info *MPI_Info;
typedef struct hfmpi_ompi_errhandler *MPI_Errhandler;
typedef struct hfmpi_ompi_datatype *MPI_Datatype;
typedef struct hfmpi_ompi_op *MPI_Op;
typedef struct hfmpi_ompi_group *MPI_Group;
typedef struct hfmpi_ompi_win *MPI_Win;
typedef ptrdiff_t MPI_Aint;
#endif
typedef struct {
	int MPI_SOURCE, MPI_TAG, MPI_ERROR, _cancelled;
	size_t _ucount;
} hfmpi_table_status;
