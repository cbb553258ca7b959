/* abi-openmpi.h - types and values of Open MPI 4 to 6, whose handles are addresses. */
#define HFM_NAME(name) name##_openmpi

typedef struct ompi_communicator_t *MPI_Comm;
typedef struct ompi_datatype_t *MPI_Datatype;
typedef struct ompi_request_t *MPI_Request;
typedef struct ompi_message_t *MPI_Message;
typedef struct ompi_group_t *MPI_Group;
typedef struct ompi_op_t *MPI_Op;
typedef struct ompi_info_t *MPI_Info;
typedef struct ompi_errhandler_t *MPI_Errhandler;
typedef struct ompi_win_t *MPI_Win;
typedef struct ompi_file_t *MPI_File;
typedef struct ompi_instance_t *MPI_Session;

typedef struct {
	int MPI_SOURCE, MPI_TAG, MPI_ERROR, cancelled;
	size_t count;
} MPI_Status;

#define MPI_STATUS_IGNORE ((MPI_Status *)0)
#define MPI_STATUSES_IGNORE ((MPI_Status *)0)
#define MPI_ANY_SOURCE (-1)
#define MPI_ANY_TAG (-1)
#define MPI_PROC_NULL (-2)
#define MPI_UNDEFINED (-32766)
#define MPI_ERR_COUNT 2
#define MPI_ERR_TRUNCATE 15
#define MPI_ERR_IN_STATUS 18
#define MPI_ERR_PENDING 19
#define MPI_MODE_RDONLY 2
#define HFM_MESSAGES_MAKE_COMMS 1
#define HFM_REQUESTS_RAISE 1
#define MPI_THREAD_MULTIPLE 3

/* Objects that the library exports under these names. */
#define MPI_COMM_WORLD ((MPI_Comm)hfm_symbols[0])
#define MPI_COMM_SELF ((MPI_Comm)hfm_symbols[1])
#define MPI_COMM_NULL ((MPI_Comm)hfm_symbols[2])
#define MPI_REQUEST_NULL ((MPI_Request)hfm_symbols[3])
#define MPI_MESSAGE_NULL ((MPI_Message)hfm_symbols[4])
#define MPI_MESSAGE_NO_PROC ((MPI_Message)hfm_symbols[5])
#define MPI_PACKED ((MPI_Datatype)hfm_symbols[6])
#define MPI_ERRORS_RETURN ((MPI_Errhandler)hfm_symbols[7])
#define MPI_BYTE ((MPI_Datatype)hfm_symbols[8])

/* How a datatype was made. */
#define MPI_COMBINER_NAMED 0
#define MPI_COMBINER_DUP 1
#define MPI_COMBINER_CONTIGUOUS 2
#define MPI_COMBINER_VECTOR 3
#define MPI_COMBINER_HVECTOR 5
#define MPI_COMBINER_INDEXED 6
#define MPI_COMBINER_HINDEXED 8
#define MPI_COMBINER_INDEXED_BLOCK 9
#define MPI_COMBINER_HINDEXED_BLOCK 18
#define MPI_COMBINER_STRUCT 11
#define MPI_COMBINER_SUBARRAY 12
#define MPI_COMBINER_DARRAY 13
#define MPI_COMBINER_RESIZED 17
#define MPI_COMBINER_F90_REAL 14
#define MPI_COMBINER_F90_COMPLEX 15
#define MPI_COMBINER_F90_INTEGER 16
#define MPI_ORDER_C 0
#define MPI_ORDER_FORTRAN 1
#define MPI_DISTRIBUTE_BLOCK 0
#define MPI_DISTRIBUTE_CYCLIC 1
#define MPI_DISTRIBUTE_NONE 2
#define MPI_DISTRIBUTE_DFLT_DARG (-1)
