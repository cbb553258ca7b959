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
#define MPI_ERR_TRUNCATE 15
#define MPI_ERR_IN_STATUS 18
#define MPI_ERR_PENDING 19
#define MPI_MODE_RDONLY 2
#define MPI_THREAD_MULTIPLE 3

/* What the library exports under these names. */
#define MPI_COMM_WORLD ((MPI_Comm)hfm_symbols[0])
#define MPI_COMM_SELF ((MPI_Comm)hfm_symbols[1])
#define MPI_COMM_NULL ((MPI_Comm)hfm_symbols[2])
#define MPI_REQUEST_NULL ((MPI_Request)hfm_symbols[3])
#define MPI_MESSAGE_NULL ((MPI_Message)hfm_symbols[4])
#define MPI_MESSAGE_NO_PROC ((MPI_Message)hfm_symbols[5])
#define MPI_PACKED ((MPI_Datatype)hfm_symbols[6])
#define MPI_ERRORS_RETURN ((MPI_Errhandler)hfm_symbols[7])
